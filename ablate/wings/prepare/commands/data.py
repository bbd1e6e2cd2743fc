"""Prepare the text that a study reads: download, tokenise, write to the store.

`ablate run` does this too. If the machines that train have no network, prepare on one that does, such as a login node
with the same store: the hub is not contacted again afterwards. Scales differ in their data: name the one you will run.

It prints the numbers of files by recognised format, documents, bytes and tokens of each split, and the beginning of the
text.
"""

from __future__ import annotations

import argparse

from ablate.commands import DONE, add_json, add_run_options, add_study, given, print_json


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
        for row in found.iter_rows(named=True):
            known = {name.replace("_", " "): value for name, value in row.items() if value is not None}
            width = max(map(len, known))
            print("\n".join(f"{name:<{width}}  {_text(value)}" for name, value in known.items()), end="\n\n")
    return DONE


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1%}"
    if isinstance(value, list):
        return "\n  ".join(("", *value))
    return f"{value:,}" if isinstance(value, int) else str(value).replace("\n", "⏎")
