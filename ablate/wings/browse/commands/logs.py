"""Print the log of a run: what its workers did, when and where, with warnings and tracebacks.

The format is the same for every engine. RUN is a digest (or the beginning of one) in the store, STUDY/ARM or
STUDY/ARM/SEED (by default the first seed), or the folder of a run.
"""

from __future__ import annotations

import argparse
from contextlib import suppress

from ablate.commands import DONE, add_store


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run in the store")
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new lines until the run is done")
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    with suppress(KeyboardInterrupt):  # Ctrl-C ends --follow
        for line in ablate.logs(options.run, store=options.store, follow=options.follow):
            print(line, flush=True)
    return DONE
