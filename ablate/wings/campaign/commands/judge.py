"""Decide on one change to a base by training both on fresh seeds: keep, discard or undecided.

All proposals for one base form a campaign: at most a tenth of the changes that it keeps are expected to be no
improvement, however many are proposed. A kept change becomes part of the base. The exit status is the decision: 0 keep,
10 discard, 11 undecided; 2 if the proposal cannot be judged. A killed command resumes when it is run again.
"""

from __future__ import annotations

import argparse
import re

from ablate.commands import (
    DONE,
    OptionError,
    add_json,
    add_run_options,
    add_study,
    given,
    given_run_options,
    print_json,
)

DISCARD, UNDECIDED = 10, 11
"""Exit statuses of the decisions other than `keep`, which is 0."""
STATUS = {"keep": DONE, "discard": DISCARD, "undecided": UNDECIDED}
UNITS = {"s": 1, "m": 60, "h": 3600}


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    parser.add_argument(
        "--change",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="an edit of the base, e.g. --change block.ffn.activation=relu2 (may be repeated)",
    )
    parser.add_argument("--arm", metavar="NAME", help="use the edits of this arm of the study instead")
    parser.add_argument("--name", help="name of the proposal (default: its edits)")
    parser.add_argument(
        "--budget", default="20m", metavar="TIME", help="time for its runs: 90s, 20m, 2h (default: 20m)"
    )
    parser.add_argument(
        "--replicate", metavar="SCALE", help="a second scale, at which a change must hold before it is kept"
    )
    parser.add_argument("--campaign", metavar="NAME", help="name of the campaign (default: the study's name and scale)")
    parser.add_argument(
        "--total-budget",
        metavar="TIME",
        help="time that all proposals judged with this option may take, whatever their campaign (default: no limit)",
    )
    parser.add_argument(
        "--alpha", type=float, default=0.1, metavar="X", help="false-discovery rate of kept changes (default: 0.1)"
    )
    parser.add_argument(
        "--init", action="store_true", help="write AGENTS.md, which tells a program how to propose changes, and exit"
    )
    add_run_options(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    if options.init:
        from ablate.wings.campaign.judging import write_instructions

        print(write_instructions(options.study, options.scale))
        return DONE
    found = ablate.judge(
        options.study,
        budget=seconds_of("budget", options.budget),
        total_budget=None if options.total_budget is None else seconds_of("total-budget", options.total_budget),
        **given(options, "change", "arm", "name", "replicate", "campaign", "alpha"),
        **given_run_options(options),
    )
    if options.json:
        print_json(found.document())
    else:
        print(found)
        if found.next:
            print(f"Next: {found.next[0]}")
        print(found.page)
    return STATUS[found.decision]


def seconds_of(option: str, text: str) -> float:
    """The seconds of `90s`, `20m` or `2h`. Raises OptionError for any other text."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smh])", text)
    if match is None:
        raise OptionError(f"--{option} {text}: expected a time such as 90s, 20m or 2h")
    return float(match[1]) * UNITS[match[2]]
