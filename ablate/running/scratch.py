"""A temporary folder for the requests and logs of workers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store import processes
from store.claims import Watch, claimed

PREFIX = "ablate-"


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder, removed at the end. Removes folders left by killed processes of this machine first."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            holder = Watch(left).holder()
        except OSError:  # somebody else's, or no folder
            continue
        # Temporary folders are local, so an owner from another boot can only be from an earlier one.
        if holder is None:
            continue
        here = holder.host
        if processes.is_of_another_start(here) or processes.has_ended(here, holder.pid, holder.started):
            shutil.rmtree(left, ignore_errors=True)  # another command may be sweeping too
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, claimed(Path(name)):
        yield Path(name)
