"""`ablate report --record`: the result of a study as a small file to commit."""

from __future__ import annotations

import argparse
from pathlib import Path

from ablate.commands import DONE, OptionError, print_json

OPTION = "--record"
BESIDE = Path()
"""Value of --record if no folder is given."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--record",
        metavar="DIR",
        nargs="?",
        type=Path,
        const=BESIDE,
        help="also write the study's result as a small file to commit (default: results/ beside the study's file)",
    )
    parser.add_argument(
        "--note",
        dest="notes",
        action="append",
        default=[],
        metavar="TEXT",
        help="with --record: what a reader should know about this result (may be repeated)",
    )


def wanted(options: argparse.Namespace) -> bool:
    """Whether the result is to be recorded. Raises OptionError."""
    if options.notes and options.record is None:
        raise OptionError("--note needs --record")
    return options.record is not None


def run(options: argparse.Namespace) -> int:
    import ablate

    page = ablate.report(options.path)
    written = ablate.record_result(options.path, None if options.record is BESIDE else options.record, options.notes)
    if options.json:
        print_json({"report": str(page), "recorded": str(written)})
    else:
        print(page, written, sep="\n")
    return DONE
