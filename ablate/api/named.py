"""A run of a store, by what a caller knows of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ablate.store import Store, StoreError


def named_run(name: str | Path, root: str | Path, known: Callable[[Store], Sequence[str]]) -> tuple[Store, str]:
    """The store and the digest of the one run that a caller means, of those `known`. Raises StoreError."""
    folder, start = Path(name).resolve(), str(name)
    if folder.name in known(Store(folder.parent)):
        return Store(folder.parent), folder.name
    store = Store(root)
    found = [digest for digest in known(store) if digest.startswith(start)]
    if len(found) != 1:
        reason = f"{len(found)} runs match: {', '.join(found)}" if found else "there is no such run"
        raise StoreError(f"{start}: {reason} in {store.root}/")
    return store, found[0]
