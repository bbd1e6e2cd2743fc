"""Verify every file of a store against its checksum.

Names every damaged file and says what to remove or rebuild. Exit status 1 if there is any damage. Files that older
versions wrote without a checksum are only checked for the right format, and are counted.

With --quick, only what changed since the last check on this machine is read: runs, corpora and checkpoints that it
found intact are skipped as long as the sizes, inodes and times of all their files are unchanged.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.commands import DONE, SOME_FAILED, add_json, print_json

if TYPE_CHECKING:
    from ablate.wings.archive.checking import Damages


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", nargs="?", default=Path("runs"), type=Path, help="default: runs/")
    parser.add_argument("--quick", action="store_true", help="read only what changed since the last check")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.check(options.store, quick=options.quick)
    if options.json:
        print_json(
            {
                "store": str(options.store),
                "damaged": found,
                "unchecked": dict(found.unchecked),
                "unreadable": found.unreadable,
                "unchanged": found.unchanged,
            }
        )
    else:
        for line in (*found, *found.unreadable):
            print(line)
        print(f"{options.store}: {_outcome(found)}")
    return SOME_FAILED if found or found.unreadable else DONE


def _outcome(found: Damages) -> str:
    counts = [f"{len(found)} damaged files"] if found else []
    if found.unreadable:
        counts.append(f"{len(found.unreadable)} files could not be read")
    if counts or not found.unchecked:
        known = f", {found.unchanged} folders unchanged since they were checked" if found.unchanged else ""
        return (", ".join(counts) or "all files are intact") + known
    kinds = "\n".join(f"  {count} {kind}" for kind, count in found.unchecked.items())
    return f"no damage found. Checked only in part, since an older version wrote them:\n{kinds}"
