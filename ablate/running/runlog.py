"""A run's log: `log.txt` in its folder, whichever engine carries it out. `ablate logs` prints it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ablate.store import Store

LOG = logging.getLogger("ablate")
DONE = "done"
"""The last line of a run that has all that was asked of it, after the time."""


class _LogFile(logging.FileHandler):
    """Lines for people: a disk that is full of other things does not deserve a traceback for each."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (its name in logging)
        """Lose the record. Whatever a number rests on says itself that the disk is full."""


@contextmanager
def logged(store: Store, digest: str) -> Iterator[None]:
    """Append log records of this project's modules in the block to the log of a run."""
    handler, level = _LogFile(store.log_path(digest), encoding="utf-8"), LOG.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(level)
        with suppress(OSError):  # as above
            handler.close()


def redirect_output(store: Store, digest: str) -> None:
    """All that this process prints from now on is appended to the log of a run: native libraries print too."""
    path = store.log_path(digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
