"""Evaluate a trained run: lm-eval tasks, loss by position, recall and more; on synthetic tasks, accuracy by difficulty.

RUN is a digest (or the beginning of one) in the store, or the folder of a run. Stored scores are not computed again.
By default the project's own tasks are run, or on a synthetic task all difficulties.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ablate.commands import DONE, SOME_FAILED, add_json, add_store, given, print_json, print_table
from ablate.errors import ArgumentError


def configure(parser: argparse.ArgumentParser) -> None:
    from evals import asking

    parser.add_argument("run", metavar="RUN", help="digest (or its beginning), or folder, of a trained run")
    asking.add_options(parser)
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate
    from reports.evaluations import lines, printed

    found = ablate.evaluate(options.run, **given(options, "store"), **_settings(options))
    for line in found.skipped:
        print(f"ablate: {line}", file=sys.stderr)
    if options.json:
        print_json(found.document())
    else:
        if table := lines(found.found):
            print_table([("task", "metric", "value", "± standard error", "chance"), *table])
        print(printed(found.found), end="")
    return SOME_FAILED if found.skipped else DONE


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    from evals import asking
    from evals.spec import EvaluationError

    try:
        return asking.given(options)
    except EvaluationError as error:
        raise ArgumentError(error.path, error.reason) from error
