"""Evaluate a trained run: lm-eval tasks, loss by position, recall and more; on synthetic tasks, accuracy by difficulty.

RUN is a digest (or the beginning of one) in the store, STUDY/ARM or STUDY/ARM/SEED (by default the first seed), the
folder of a run, or a model trained elsewhere: its folder, which is first imported as by `ablate import`, or its name.
Stored scores are not recomputed.
By default this runs the project's own tasks or, for a model of a synthetic task, all difficulties.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ablate.commands import DONE, SOME_FAILED, add_json, add_store, given, print_json, print_table
from store.errors import ArgumentError

if TYPE_CHECKING:
    from ablate import Scores
    from store.documents import EvalsDocument


def configure(parser: argparse.ArgumentParser) -> None:
    from ablate.wings.evaluate import asking

    parser.add_argument("run", metavar="RUN", help="digest, STUDY/ARM or folder of a run, or a checkpoint")
    asking.add_options(parser)
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.evaluate(options.run, **given(options, "store"), **settings(options))
    for line in found.skipped:
        print(f"ablate: {line}", file=sys.stderr)
    if options.json:
        print_json(found.document())
    else:
        show(found)
    return SOME_FAILED if found.skipped else DONE


def show(found: Scores) -> None:
    """Print the results of an evaluation, and below them what sections of the page print of their tables."""
    from reports.page.evaluations import EvaluationSection
    from reports.page.sections import sections

    known = {name: each for name, each in sections().items() if issubclass(each, EvaluationSection)}
    tables = found.found.sections.items()
    lacking = [
        (*(known[name].missed(table.about, row) if name in known else (name, "")), str(row["reason"]), "", "")
        for name, table in tables
        for row in table.rows
        if "reason" in row
    ]
    if table := [*_lines(found.found), *lacking]:
        print_table([("task", "metric", "value", "± standard error", "chance"), *table])
    print("".join(known[name].printed(table) for name, table in tables if name in known), end="")


def _lines(document: EvalsDocument) -> Iterator[tuple[str, ...]]:
    """Task, metric, value, standard error and chance of every score."""
    from reports.page.wording import words

    for task, metrics in document.scores.items():
        for metric, each in metrics.items():
            numbers = (each.value, each.stderr, each.chance)
            yield task, metric, *("" if number is None else words.score(number) for number in numbers)


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """The command line's evaluations as keyword arguments of `ablate.evaluate`. Raises ArgumentError."""
    from ablate.wings.evaluate import asking
    from evals.spec import EvaluationError

    try:
        return asking.given(options)
    except EvaluationError as error:
        raise ArgumentError(error.path, error.reason) from error
