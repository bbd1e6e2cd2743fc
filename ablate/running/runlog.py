"""A run's log, `log.txt` in its folder for every engine. `ablate logs` prints it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from store import Store

LOG = logging.getLogger("ablate")
DONE = "done"
"""Last line of the log, after the time, once a run's phases are complete."""


class _LogFile(logging.FileHandler):
    """Log file that drops records on a full disk, instead of printing a traceback for each."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (its name in logging)
        """Drop the record. Files that results depend on raise their own errors when the disk is full."""


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
        with suppress(OSError):  # a full disk, as in `_LogFile`
            handler.close()


def redirect_output(store: Store, digest: str) -> None:
    """Append this process's output to the log of a run, by file descriptor, so that native libraries' is included."""
    path = store.log_path(digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
