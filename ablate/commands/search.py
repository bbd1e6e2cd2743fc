"""Search a study's space for the best settings, or for the front between several objectives.

Every trial is an ordinary run of the store. Run it again after any interruption: trials that were running go on, and
none that ended is repeated. Any number of commands may share one search, here or on machines that share the store.
"""

from __future__ import annotations

import argparse

from ablate.commands import add_checkpoints, add_json, add_study, add_workers, positive


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    parser.add_argument("--engine", default="local", help="where runs are carried out (default: local)")
    add_workers(parser)
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="where trials are kept: postgresql://…, sqlite:///…, grpc://host:port (default: a journal in the store)",
    )
    parser.add_argument(
        "--promote",
        type=positive,
        metavar="N",
        help="write the N best trials as an ordinary study with fresh seeds, beside the study",
    )
    add_checkpoints(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from ablate.commands._searching import search_study

    return search_study(options)
