"""Evaluate a trained run on lm-eval tasks, its own or others, and by position; on a task that is made, by difficulty.

RUN is a digest (or the beginning of one) in the store, or the folder of a run. Scores that the store has are not
computed again.
"""

from __future__ import annotations

import argparse

from ablate.commands import add_json, add_store


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN")
    parser.add_argument(
        "--tasks", nargs="+", metavar="TASK", help="lm-eval tasks, or paths of task files (default: the project's own)"
    )
    parser.add_argument("--include", nargs="+", metavar="DIR", help="folders with task files of your own")
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many items per task")
    parser.add_argument(
        "--positions",
        nargs="+",
        type=int,
        metavar="N",
        help="loss by position in windows of N times the training context; tasks only where --tasks names some",
    )
    parser.add_argument(
        "--at",
        nargs="+",
        metavar="DIFFICULTY=N,N",
        help="of a run on a task that is made: accuracy at these difficulties, longer ones than were trained on too",
    )
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from ablate.commands._evaluating import evaluate_run

    return evaluate_run(options)
