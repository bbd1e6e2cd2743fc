"""Run a study: train what is missing, measure, evaluate, and write the report.

Runs that the store already has are reused. A run that was killed resumes from its last checkpoint.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ablate.commands import (
    DONE,
    EXECUTION,
    SOME_FAILED,
    add_engine,
    add_execution,
    add_json,
    add_study,
    given,
    given_engine,
    print_json,
    print_table,
)
from ablate.commands._remembered import remembered

if TYPE_CHECKING:
    from ablate import StudyResult


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    add_engine(parser)
    add_execution(parser)
    parser.add_argument(
        "--tracker",
        dest="trackers",
        action="append",
        default=[],
        metavar="NAME",
        help="also show runs in tensorboard or wandb (may be repeated)",
    )
    parser.add_argument(
        "--promote",
        metavar="FILE",
        help="of a study with a design: write a study that confirms its better effects with fresh seeds",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    said = remembered(options, lambda: _said(options), lambda said, _stamps: said["is_settled"])
    if options.json:
        print_json(said["document"])
    elif said["table"]:
        print_table(said["table"])
        print("\n".join(said["lines"]))
    for failure in said["failed"]:
        print(f"ablate: failed: {failure}", file=sys.stderr)
    for line in said["skipped"]:
        print(f"ablate: {line}", file=sys.stderr)
    return SOME_FAILED if said["failed"] or said["skipped"] else DONE


def _said(options: argparse.Namespace) -> dict[str, Any]:
    """`is_settled`: nothing was left to do, so that the same is said again."""
    import ablate

    result = ablate.run(options.study, **given_engine(options), **given(options, "promote", "trackers", *EXECUTION))
    failed, skipped = [str(failure) for failure in result.failed], list(result.skipped)
    said = {"failed": failed, "skipped": skipped, "is_settled": not (result.trained or failed or skipped)}
    if options.json:
        return {**said, "document": result.document()}
    return {**said, "table": result.table(), "lines": list(_lines(options, result))}


def _lines(options: argparse.Namespace, result: StudyResult) -> Iterator[str]:
    """What stands below the table."""
    yield result.headline
    yield from result.notes()
    yield str(result.report)
    if options.promote:
        yield _promoted(options, result)


def _promoted(options: argparse.Namespace, result: StudyResult) -> str:
    if result.promoted is None:
        return "no effect lowers the loss surely: there is nothing to confirm, and no study was written"
    return f"fresh seeds: ablate run {result.promoted} --scale {result.scale} --store {options.store}"
