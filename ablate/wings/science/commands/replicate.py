"""Replicate a paper's table: show ours beside it, and whether each row agrees, differs, or cannot be told.

PAPER is a study file with a section `published`, the name of one that ships, or its arXiv number; without PAPER, the
shipped papers are listed. Rows are judged as claims of the study, at the given scale. --plan shows the cost and the
differences that it would detect, without training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from ablate.commands import (
    DONE,
    SOME_FAILED,
    add_json,
    add_run_options,
    add_store,
    given,
    given_run_options,
    print_json,
    print_prose,
    print_table,
)
from ablate.commands.plan import SETTINGS


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paper", nargs="?", metavar="PAPER", help="arXiv number, name of a shipped paper, or a file")
    parser.add_argument(
        "--plan", action="store_true", help="show the cost and the detectable differences, without training"
    )
    parser.add_argument("--scale", help="a scale of the study (default: on a GPU gpu-hour; else cpu)")
    parser.add_argument(
        "--set", dest="sets", action="append", default=[], metavar="PATH=VALUE", help="edit the study (may be repeated)"
    )
    add_store(parser)
    add_run_options(parser)
    add_json(parser)


def names() -> Iterable[str]:
    """Papers to complete on the command line."""
    from ablate.wings.science.sources import papers

    return papers()


def run(options: argparse.Namespace) -> int:
    if options.paper is None:
        from ablate.wings.science.sources import papers

        if options.json:
            print_json(papers())
        else:
            print_table([("paper", "table"), *papers().items()], text_columns=2)
        return DONE
    return _plan(options) if options.plan else _replicate(options)


def _plan(options: argparse.Namespace) -> int:
    import ablate
    from ablate.wings.science.sources import find_paper
    from ablate.wings.science.stated import foretold

    settings = given(options, "scale", "sets", "store", "device", *SETTINGS)
    plan = ablate.plan(find_paper(options.paper), **settings)
    if options.json:
        print_json(plan.document())
        return DONE
    print_prose([plan.study.question])
    for _, rows in plan.tables():
        print_table(rows)
    print_prose([*plan.notes(), *foretold(plan.study, plan.detectable)])
    return DONE


def _replicate(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.replicate(options.paper, **given_run_options(options))
    if options.json:
        print_json(found.document())
    elif found.text:
        print_table(found.text, text_columns=len(found.text[0]))
        print_prose([*found.notes(), *found.result.next])
        print(found.result.report)
    for failure in found.result.failed:
        print(f"ablate: failed: {failure}", file=sys.stderr)
    return SOME_FAILED if found.result.failed else DONE
