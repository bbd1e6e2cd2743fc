"""Search a study's space for the best settings, or for the Pareto front of several objectives.

Every trial is an ordinary run in the store. After an interruption, run the command again: unfinished trials resume, and
finished ones are not repeated. Any number of commands may share one search, on this machine or on others that share the
store.
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
    positive,
    print_json,
    print_table,
    suggested,
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    add_run_options(parser)
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="where trials are kept: postgresql://…, sqlite:///…, grpc://host:port (default: a journal in the store)",
    )
    parser.add_argument(
        "--promote",
        type=positive,
        metavar="N",
        help="write the N best trials as an ordinary study with fresh seeds, next to the study's file",
    )
    add_allow_code(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    result = ablate.search(
        options.study, **given_run_options(options), **given(options, "storage", "promote", "allow_code")
    )
    if options.json:
        print_json(result.document())
    else:
        print_table(result.table(), text_columns=2)
        print(result.headline)
        print(result.report)
        if result.promoted:
            sets = [f" --set {shlex.quote(text)}" for text in options.sets if not text.startswith("search.")]
            command = f"ablate run {shlex.quote(str(result.promoted))} --scale {result.found.scale}{''.join(sets)}"
            print(f"to confirm with fresh seeds: {suggested(command, options)}")
    for failure in result.failed:
        print(f"ablate: failed: {failure}", file=sys.stderr)
    return SOME_FAILED if result.failed else DONE
