"""List the variants on every axis, the parts of a model, training objectives, ways to decode and presets, or show one.

NAME is a preset (its model in full, as YAML, with its cost), one of the others (its documentation and settings), or
`model` or `block` (the settings that are no variant's).
"""

from __future__ import annotations

import argparse

from ablate.commands import add_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("--small", action="store_true", help="the preset shrunk to train in seconds")
    parser.add_argument(
        "--matrix",
        nargs="?",
        const="matrix.html",
        metavar="FILE",
        help="write what can be combined as a page (default: matrix.html); with --json, print it",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from ablate.commands._catalogue import show_all, show_matrix, show_one

    if options.matrix:
        return show_matrix(options.matrix, options.json)
    return show_one(options.name, options.small, options.json) if options.name else show_all(options.json)
