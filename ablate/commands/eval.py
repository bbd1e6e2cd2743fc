"""Evaluate a trained run on lm-eval tasks, by position and by recall; on a task that is made, by difficulty.

RUN is a digest (or the beginning of one) in the store, or the folder of a run. Scores that the store has are not
computed again.
"""

from __future__ import annotations

import argparse

from ablate.commands import add_json, add_store, positive


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN")
    parser.add_argument(
        "--tasks",
        nargs="+",
        metavar="TASK",
        help="lm-eval tasks and groups, or paths of task files, by spaces or commas (default: the project's own)",
    )
    parser.add_argument(
        "--data",
        action="append",
        type=_named_path,
        metavar="NAME=PATH",
        help="take the data of a task or a group from a file or folder of parquet or JSON (may be repeated)",
    )
    parser.add_argument("--include", nargs="+", metavar="DIR", help="folders with task files of your own")
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many items per task")
    parser.add_argument(
        "--fewshot", type=int, metavar="N", help="solved examples before each item (default: the task's)"
    )
    parser.add_argument("--batch", type=_rows, metavar="N", help="rows that the model reads at once (default: auto)")
    parser.add_argument(
        "--positions",
        nargs="+",
        type=int,
        metavar="N",
        help="loss by position in windows of N times the training context; tasks only where --tasks names some",
    )
    parser.add_argument(
        "--recall",
        action="store_true",
        help="loss of tokens that complete a bigram which the window holds already, by how far back it is",
    )
    parser.add_argument(
        "--at",
        nargs="+",
        metavar="DIFFICULTY=N,N",
        help="of a run on a task that is made: accuracy at these difficulties, longer ones than were trained on too",
    )
    parser.add_argument("--samples", action="store_true", help="text that it writes after prompts from held-out text")
    add_store(parser)
    add_json(parser)


def _named_path(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=PATH")
    return name, path


def _rows(text: str) -> int | str:
    return text if text == "auto" else positive(text)


def run(options: argparse.Namespace) -> int:
    from ablate.commands._evaluating import evaluate_run

    return evaluate_run(options)
