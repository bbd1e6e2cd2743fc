"""List variants, model parts, objectives, optimizers, data sources and evaluations, or show one.

NAME is `presets` (the table of published models), a preset (shown as YAML, with its cost), any other listed name (shown
with documentation and settings), the name of a setting (shown with the parts that have it), a name of
`zoo.building_blocks` (shown with its signature), or `model`, `block`, `train`, `lora`, `start` or `teacher` (the
settings that belong to no variant).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ablate.commands import OptionError, add_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("--small", action="store_true", help="show the preset shrunk to a size that trains in seconds")
    parser.add_argument("--format", choices=("table", "markdown", "csv"), default="table", help="format of `presets`")
    parser.add_argument(
        "--matrix",
        nargs="?",
        const="matrix.html",
        metavar="FILE",
        help="write a page that shows which variants combine (default: matrix.html); with --json, print it",
    )
    parser.add_argument(
        "--check",
        metavar="VARIANT",
        help="test models with a variant: causality, decoding with a cache, gradients, declared costs, saving",
    )
    parser.add_argument("--quick", action="store_true", help="with --check: the variant by itself only, in seconds")
    add_json(parser)


def names() -> Iterable[str]:
    """Names to complete on the command line."""
    from zoo.presets import names

    return ["presets", *names()]


def run(options: argparse.Namespace) -> int:
    if options.quick and not options.check:
        raise OptionError("--quick needs --check VARIANT")
    if options.check:
        from ablate.wings.catalogue.commands._conformance import show_check

        return show_check(options.check, options.json, options.quick)
    if options.matrix:
        from ablate.wings.catalogue.commands._catalogue import show_matrix

        return show_matrix(options.matrix, options.json)
    if options.name is None and options.format == "table":
        from ablate.wings.catalogue.commands._whole_catalogue import show_all

        return show_all(options.json)
    from ablate.wings.catalogue.commands._catalogue import show_one, show_presets

    if options.name == "presets":
        return show_presets(options.format, options.json)
    if options.format != "table":
        raise OptionError("--format needs `ablate zoo presets`")
    return show_one(options.name, options.small, options.json)
