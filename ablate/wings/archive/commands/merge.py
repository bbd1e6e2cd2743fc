"""Import runs, studies and ledgers from an archive into a store.

The archive may come from anybody: it has no code and no pickles, and all of it is verified before anything is written.
Runs are identified by digest. Nothing here is replaced: a run that the store has with other results is refused by name,
with exit status 1. Ledgers are joined, so that verdicts are corrected for the looks of both labs.
"""

from __future__ import annotations

import argparse
import shlex

from ablate.commands import DONE, SOME_FAILED, add_json, add_store, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="FILE", help="an archive of `ablate pack`")
    parser.add_argument("--limit", default="16GiB", metavar="SIZE", help="largest size that it may unpack to: 16GiB")
    add_store(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    found = ablate.merge(options.path, store=options.store, limit=options.limit)
    if options.json:
        print_json(found.document())
    else:
        print("\n".join(found.lines()))
        print(f"`ablate report {shlex.quote(str(options.store))}` re-renders the pages.")
    return SOME_FAILED if found.refused else DONE
