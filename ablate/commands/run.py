"""Run a study: train what is missing, measure, evaluate, and write the report.

Runs that the store already has are reused. A run that was killed resumes from its last checkpoint.
"""

from __future__ import annotations

import argparse
import shlex
import sys

from ablate.commands import (
    DONE,
    SOME_FAILED,
    add_allow_code,
    add_json,
    add_run_options,
    add_study,
    given,
    given_run_options,
    print_json,
    print_prose,
    print_table,
    suggested,
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    add_run_options(parser)
    add_allow_code(parser)
    parser.add_argument(
        "--tracker",
        dest="trackers",
        action="append",
        default=[],
        metavar="NAME",
        help="also log runs to tensorboard, wandb, mlflow or trackio (may be repeated)",
    )
    parser.add_argument(
        "--promote",
        metavar="FILE",
        help="for a study with a design: write a study that confirms its better effects with fresh seeds",
    )
    parser.add_argument(
        "--no-report",
        dest="report",
        action="store_false",
        help="train without showing losses or writing a report: seeds that nobody looked at can be judged with others",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    result = ablate.run(
        options.study, **given_run_options(options), **given(options, "promote", "trackers", "allow_code", "report")
    )
    if options.json:
        print_json(result.document())
    elif result.summary:
        print_table(result.table())
        print_prose([str(result.headline), *result.notes(), *result.next])
        print(result.report)
        if options.promote and result.promoted is None:
            print("no effect has the verdict better: nothing to confirm, and no study was written")
        elif options.promote:
            command = f"ablate run {shlex.quote(str(result.promoted))} --scale {result.scale}"
            print(f"to confirm with fresh seeds: {suggested(command, options)}")
    elif not options.report and not result.failed:
        print(f"{result.trained} runs trained, {result.reused} reused; no loss was shown, and nothing was judged")
    for failure in result.failed:
        print(f"ablate: failed: {failure}", file=sys.stderr)
    for line in result.skipped:
        print(f"ablate: {line}", file=sys.stderr)
    return SOME_FAILED if result.failed or result.skipped else DONE
