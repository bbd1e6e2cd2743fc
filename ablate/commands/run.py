"""Train what is missing of a study, measure, evaluate, and render the report.

What the store already has is reused. A run that was killed goes on from its last saved state.
"""

from __future__ import annotations

import argparse

from ablate.commands import add_checkpoints, add_json, add_study, add_workers


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    parser.add_argument("--engine", default="local", help="where runs are carried out (default: local)")
    add_workers(parser)
    add_checkpoints(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from ablate.commands._running import run_study

    return run_study(options)
