"""A run's log: `log.txt` in its folder, whichever engine carries it out. `ablate logs` prints it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ablate.store import Store

LOG = logging.getLogger("ablate")
DONE = "done"
"""The last line of a run that has all that was asked of it, after the time."""


@contextmanager
def logged(store: Store, digest: str) -> Iterator[None]:
    """Append log records of this project's modules in the block to the log of a run."""
    handler, level = logging.FileHandler(store.log_path(digest), encoding="utf-8"), LOG.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(level)
        handler.close()


def redirect_output(store: Store, digest: str) -> None:
    """All that this process prints from now on is appended to the log of a run: native libraries print too."""
    path = store.log_path(digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
