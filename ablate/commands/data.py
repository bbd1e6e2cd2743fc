"""Prepare the text that a study reads: download, tokenise, write to the store.

`ablate run` does this too. If the machines that train have no network, prepare on one that does, such as a login node
with the same store: the hub is not contacted again afterwards. Scales differ in their data: name the one you will run.
"""

from __future__ import annotations

import argparse

from ablate.commands import DONE, add_json, add_run_options, add_study, given, print_json, print_table


def configure(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    add_run_options(parser, "device")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.prepare(options.study, **given(options, "scale", "sets", "store", "device"))
    if options.json:
        print_json(found.to_dicts())
    else:
        print_table([tuple(found.columns), *(tuple(map(_text, row)) for row in found.iter_rows())])
    return DONE


def _text(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)
