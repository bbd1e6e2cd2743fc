"""A temporary folder for the requests and logs of workers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablate.store import processes
from ablate.store.claims import Watch, claimed
from ablate.store.documents.claim import ClaimRecord

PREFIX = "ablate-"


@contextmanager
def scratch() -> Iterator[Path]:
    """Removed at the end. Those that killed processes of this machine have left are removed at the beginning."""
    _sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, claimed(Path(name)):
        yield Path(name)


def _sweep(folder: Path) -> None:
    for left in folder.glob(f"{PREFIX}*"):
        try:
            holder = Watch(left).holder()
        except OSError:  # somebody else's, or no folder
            continue
        if holder is not None and _has_ended(holder):
            shutil.rmtree(left, ignore_errors=True)  # another command may be sweeping too


def _has_ended(holder: ClaimRecord) -> bool:
    """Temporary folders are of this machine alone, so that an owner of another start is of an earlier one."""
    return processes.is_of_another_start(holder.host) or processes.has_ended(holder.host, holder.pid, holder.started)
