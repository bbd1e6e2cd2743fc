"""`ablate.check`: verify that the files of a store are still as they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from store import Store, StoreError
from store.checking import Check


class Damages(list[str]):
    """Lines about damaged files. `unchecked` counts, by kind, the files in which damage may go unnoticed, since an
    earlier version wrote them with fewer checksums."""

    unchecked: Mapping[str, int]
    unreadable: Sequence[str]
    """Files that could not be read: permission, memory, the disk."""
    unchanged: int
    """Number of folders that a quick check skipped, since an earlier check found them intact."""


def check(store: str | Path = "runs", quick: bool = False) -> Damages:
    """Read every file of a store, and compare it with its checksum.

    Args:
        store: the folder of runs.
        quick: skip folders that an earlier check on this machine found intact and whose file sizes, inodes and times
            are unchanged since. Data that a disk loses silently changes none of these.

    Returns:
        One line per damaged file: what is wrong with it, and what to remove or rebuild. Empty for an intact store.
        Attributes: `unchecked` counts, by kind, the files with too few checksums, `unreadable` names those that cannot
        be read, and `unchanged` counts the folders that a quick check skipped.

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
