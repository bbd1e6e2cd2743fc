"""List variants, model parts, objectives, optimizers, data sources and evaluations, or show one.

NAME is `presets` (the table of published models), a preset (shown as YAML, with its cost), any other listed name (shown
with documentation and settings), the name of a setting (shown with the parts that have it), a name of
`zoo.building_blocks` (shown with its signature), or `model`, `block`, `train`, `lora`, `start` or `teacher` (the
settings that belong to no variant).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ablate.commands import DONE, OptionError, add_json, print_json, print_line, print_table

FIRST = ("mixers", "ffns", "norms", "residuals", "positions", "positions.scalings", "sparsities", "parts")
"""Axes that are listed first: the parts of a model."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="*", metavar="NAME")
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
        from ablate.wings.catalogue.commands._catalogue import show_check

        return show_check(options.check, options.json, options.quick)
    if options.matrix:
        from ablate.wings.catalogue.commands._catalogue import show_matrix

        return show_matrix(options.matrix, options.json)
    name = " ".join(options.name)
    if name == "presets":
        return _show_presets(options.format, options.json)
    if not name and options.format == "table":
        return _show_all(options.json)
    if options.format != "table":
        raise OptionError("--format needs `ablate zoo presets`")
    from ablate.wings.catalogue.commands._catalogue import show_one

    return show_one(name, options.small, options.json)


def _show_all(as_json: bool) -> int:
    from ablate.wings.catalogue.shipped import catalogue

    found = catalogue()
    if as_json:
        print_json(found)
        return DONE
    variants = found["variants"]
    for axis in sorted(variants, key=lambda axis: FIRST.index(axis) if axis in FIRST else len(FIRST)):
        print(axis)
        width = max(len(each["name"]) for each in variants[axis])
        for each in variants[axis]:
            plugin = f"(plug-in {each['plugin']}) " if "plugin" in each else ""
            print_line(f"  {each['name']:{width}}  {plugin}{each['doc']}")
        print()
    print(f"`ablate zoo presets` lists {len(found['presets'])} published models.")
    print("`ablate zoo NAME` shows a variant or a preset in full; for `model`, `block`,")
    print("`train`, `lora`, `start` or `teacher` its settings; for a setting the parts that")
    print("have it; for a name of zoo.building_blocks its signature and documentation.")
    return DONE


def _show_presets(form: str, as_json: bool) -> int:
    """Show the published models, in the table the oldest first."""
    from ablate.wings.catalogue.model_table import COLUMNS, as_csv, as_markdown, published_model, rows
    from ablate.wings.catalogue.shipped import catalogue

    presets = catalogue()["presets"]
    models = [published_model(row) for row in presets]
    if as_json:
        print_json(presets)
    elif form == "table":
        print_table([tuple(COLUMNS.values()), *rows(models)], text_columns=list(COLUMNS).index("parameters"))
        print("* assumed: not in the source. Parameters are counted from the spec;")
        print("published counts are those of the source.")
    else:
        print({"markdown": as_markdown, "csv": as_csv}[form](models), end="")
    return DONE
