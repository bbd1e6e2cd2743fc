"""Temporary folders that no killed process leaves behind: for requests and logs of workers, and for archives."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from store import processes
from store.claims import Watch, claimed, last_beat

PREFIX = "ablate-"
DAY_SECONDS = 86_400.0
"""Silence after which a folder on a file system that other machines may share counts as left."""


@contextmanager
def scratch(prefix: str = PREFIX, beside: Path | None = None) -> Iterator[Path]:
    """A temporary folder, removed at the end. Removes folders left by killed processes of this machine first.

    beside: the folder for it; None for that of temporary files, which is this machine's own.
    """
    place = Path(tempfile.gettempdir()) if beside is None else beside
    for folder in left_behind(place, prefix, is_shared=beside is not None):
        shutil.rmtree(folder, ignore_errors=True)  # another command may be sweeping too
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place) as name, claimed(Path(name)):
        yield Path(name)


def left_behind(place: Path, prefix: str, is_shared: bool) -> Iterator[Path]:
    """Temporary folders whose process has ended. is_shared: other machines may have made them."""
    for folder in place.glob(f"{prefix}*"):
        with suppress(OSError):  # somebody else's, or no folder
            holder = Watch(folder).holder()
            if holder is None:
                continue
            # On this machine alone, an owner from another boot can only be from an earlier one.
            silent = not is_shared or time.time() - last_beat(folder) > DAY_SECONDS
            earlier = silent and (is_shared or processes.is_of_another_start(holder.host))
            if earlier or processes.has_ended(holder.host, holder.pid, holder.started):
                yield folder
