"""`ablate.check`: whether the files of a store are still as they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ablate.store import Store, StoreError
from ablate.store.checking import Check


class Damages(list[str]):
    """Lines about damaged files. `unchecked` counts, by kind, the files in which damage may go unnoticed, since a
    version before this wrote them with fewer checksums."""

    unchecked: Mapping[str, int]
    unreadable: Sequence[str]
    """Files that could not be read: permission, memory, the disk."""
    unchanged: int
    """Folders that were not read, since an earlier check found them whole."""


def check(store: str | Path = "runs", quick: bool = False) -> Damages:
    """Read every file of a store, and compare it with its checksum.

    Args:
        store: the folder of runs.
        quick: only what changed, by its sizes, inodes and times, since a check on this machine found it whole. What a
            disk loses by itself changes none of these.

    Returns:
        One line per damaged file: what is wrong with it, and what to remove or rebuild. Empty for an intact store. Its
        attribute `unchecked` counts the files that have no checksum, `unreadable` names those that cannot be read, and
        `unchanged` counts the folders that a quick check left out.

    Raises:
        StoreError: there is no such folder.

    Example:
        >>> ablate.check("runs")
        []
    """
    if not Path(store).is_dir():
        raise StoreError(f"{store} is not a folder")
    checked = Check(Store(store), quick)
    found = Damages(checked.damages())
    found.unreadable = list(checked.unreadable)
    found.unchanged = checked.unchanged
    found.unchecked = dict(sorted(checked.unchecked.items()))
    return found
