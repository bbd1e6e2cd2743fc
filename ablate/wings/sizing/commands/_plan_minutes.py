"""`ablate plan --minutes`."""

from __future__ import annotations

import argparse

from ablate.commands import DONE, OptionError, given, print_json, print_prose, print_table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="choose the largest model that fits in N minutes on this machine, and print the lines to paste",
    )


def wanted(options: argparse.Namespace) -> bool:
    return options.minutes is not None


def run(options: argparse.Namespace) -> int:
    import ablate

    if options.detect is not None or options.details:
        raise OptionError("--minutes cannot be combined with --detect or --details")
    found = ablate.size(options.study, options.minutes, **given(options, "scale", "sets", "store", "device"))
    if options.json:
        print_json(found.document())
        return DONE
    for _, rows in found.plan.tables():
        print_table(rows)
    print_prose(found.plan.notes())
    print("\n".join(["", *found.lines()]))
    return DONE
