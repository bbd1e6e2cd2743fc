"""Print the log of a run: what its workers did when and where, warnings and tracebacks.

It looks the same whichever engine carries out the run. RUN is a digest, the beginning of one, or the folder of a run.
"""

from __future__ import annotations

import argparse
from contextlib import suppress

from ablate.commands import DONE, add_store


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run of the store")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is appended, until it is done")
    add_store(parser)


def run(options: argparse.Namespace) -> int:
    import ablate

    with suppress(KeyboardInterrupt):  # how one stops following
        for line in ablate.logs(options.run, store=options.store, follow=options.follow):
            print(line, flush=True)
    return DONE
