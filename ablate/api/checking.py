"""`ablate.check`: whether the files of a store are still as they were written."""

from __future__ import annotations

from pathlib import Path

from ablate.store import Store, StoreError
from ablate.store.checking import damages


def check(store: str | Path = "runs") -> list[str]:
    """Read every file of a store, and compare it with its checksum.

    Args:
        store: the folder of runs.

    Returns:
        One line per damaged file: what is wrong with it, and what to remove or rebuild. Empty for an intact store.

    Raises:
        StoreError: there is no such folder.

    Example:
        >>> ablate.check("runs")
        []
    """
    if not Path(store).is_dir():
        raise StoreError(f"{store} is not a folder")
    return list(damages(Store(store)))
