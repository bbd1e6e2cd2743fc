"""Evaluate a trained run on lm-eval tasks, by position and by recall; on a task that is made, by difficulty.

RUN is a digest (or the beginning of one) in the store, or the folder of a run. Scores that the store has are not
computed again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from ablate.commands import (
    DONE,
    SOME_FAILED,
    OptionError,
    add_json,
    add_store,
    given,
    positive,
    print_json,
    print_table,
)


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
    import ablate
    from ablate.commands._scores import rows, samples

    found = ablate.evaluate(options.run, **_asked(options))
    for line in found.skipped:
        print(f"ablate: {line}", file=sys.stderr)
    if options.json:
        print_json(found.document())
    else:
        if table := rows(found.found):
            print_table([("task", "metric", "value", "± standard error", "chance"), *table])
        print("".join(samples(found.found.sections.get("samples"))), end="")
    return SOME_FAILED if found.skipped else DONE


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `ablate.evaluate`, but for the run."""
    return {
        **given(options, "limit", "fewshot", "batch", "include", "recall", "samples", "store"),
        "tasks": options.tasks and [name for names in options.tasks for name in names.split(",") if name],
        "data": options.data and _once("data", options.data),
        "positions": options.positions and {"multiples": options.positions},
        "at": options.at and _once("at", map(_difficulty, options.at)),
    }


def _once(option: str, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """What an option gives by name. Raises OptionError for a name that it gives twice, of which one would be lost."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise OptionError(f"--{option}: {name} is given twice")
        found[name] = value
    return found


def _difficulty(text: str) -> tuple[str, list[int]]:
    """`pairs=4,64`."""
    name, _, values = text.partition("=")
    try:
        return name, [int(value) for value in values.split(",")]
    except ValueError as error:
        raise OptionError(f"--at {text}: expected whole numbers, as in pairs=4,64") from error
