"""Verify every file of a store against its checksum.

Names every damaged file and says what to remove or rebuild. Exit status 1 if there is any damage. Files written without
a checksum, by older versions or by hand, are only checked for the right format.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ablate.commands import DONE, SOME_FAILED, add_json, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", nargs="?", default=Path("runs"), type=Path, help="default: runs/")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.check(options.store)
    if options.json:
        print_json({"store": str(options.store), "damaged": found})
    else:
        print(*found, sep="\n", end="\n" if found else "")
        print(f"{options.store}: {len(found)} damaged files" if found else f"{options.store}: everything is whole")
    return SOME_FAILED if found else DONE
