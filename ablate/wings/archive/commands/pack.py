"""Write studies and runs of a store to one archive, for somebody else's store.

NAME is a study (name or file), a run's digest or the beginning of one, STUDY/ARM, or a folder. The archive has results,
evaluations, measurements and the ledger of each study; with --weights also the trained models; no texts, pages or logs.
`ablate merge FILE` imports the archive, and refuses one that was changed since.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ablate.commands import DONE, add_json, add_store, given, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="a study, or a run")
    parser.add_argument("--out", required=True, metavar="FILE", help="the archive; an existing file is replaced")
    parser.add_argument("--weights", action="store_true", help="include the trained models")
    parser.add_argument("--scale", help="scale of the studies, if the store has several")
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.pack(*options.names, **given(options, "out", "weights", "scale", "store"))
    if options.json:
        print_json({**asdict(found), "path": str(found.path)})
        return DONE
    studies = f"{', '.join(found.studies)}; " if found.studies else ""
    print(f"{found.path}: {studies}{len(found.runs)} runs, {found.bytes:,} bytes")
    if found.left_out:
        print(f"left out, since they have not ended: {', '.join(found.left_out)}")
    print(f"sha256 {found.sha256}")
    return DONE
