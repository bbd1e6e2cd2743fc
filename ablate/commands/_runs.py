"""A run from the command line."""

from __future__ import annotations

from pathlib import Path

from ablate.cli import InputError
from ablate.store import Store


def find_run(name: str, root: Path) -> tuple[Store, str]:
    """The store and the digest of a finished run, by folder, digest, or the beginning of one. Raises InputError."""
    folder = Path(name)
    if (folder / "run.json").is_file():
        root, name = folder.resolve().parent, folder.resolve().name
    store = Store(root)
    found = [digest for digest in store.runs() if digest.startswith(name)]
    if len(found) != 1:
        reason = f"{len(found)} runs begin so: {', '.join(found)}" if found else "there is no such run"
        raise InputError(f"{name}: {reason} in {root}/")
    status = store.status(found[0])
    if status != "finished":
        raise InputError(f"{found[0]}: the run is {status}, so there is no model")
    return store, found[0]
