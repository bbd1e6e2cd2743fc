"""Record of the folders that `ablate check` found intact, by stamps from the metadata of all their files.

    stamp = H(name, mode, inode, size, mtime, ctime of every file)

No program can set a ctime, so a file that was written, replaced or copied has another stamp. A folder is recorded only
if its last change was more than `stamps.TICK_NS` before it was read, by the clock of the file system, which may be
another machine's.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from store import jsonfile, stamps
from store.documents import Document


class WholeDocument(Document):
    """`checked-<machine>.json` of a store: the folders that `ablate check` found intact on one machine.
    `ablate check --quick` reads only the others."""

    folders: dict[str, str]
    """Stamps by the folder's path in the store: a hash of the names, modes, inodes, sizes and times of its files."""


class Stamp(NamedTuple):
    """The state of a folder."""

    seal: str
    newest: int
    """Time of the latest change of a file, in ns since 1970."""


def stamp(folder: Path) -> Stamp | None:
    """The stamp of a folder; None if it cannot be read, or has a symbolic link, whose target a stamp does not cover."""
    try:
        found = sorted(_files(os.fspath(folder), ""))
    except OSError:
        return None
    if any(link for _, link, *_ in found):
        return None
    newest = max((max(mtime, ctime) for *_, mtime, ctime in found), default=0)
    return Stamp(hashlib.sha256(repr(found).encode()).hexdigest()[:32], newest)


def _files(folder: str, inside: str) -> Iterator[tuple[str, bool, int, int, int, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, f"{inside}{entry.name}/")
            else:
                found = entry.stat(follow_symlinks=False)
                times = found.st_mtime_ns, found.st_ctime_ns
                yield inside + entry.name, entry.is_symlink(), found.st_mode, found.st_ino, found.st_size, *times


class WholeFolders:
    """The folders of a store that this machine found intact, in a file that may be removed. An unreadable file, as of
    another version or user, counts as empty."""

    def __init__(self, root: Path) -> None:
        self._path = root / stamps.checked_name()
        known = stamps.read_record(self._path, WholeDocument)
        self._known = known.folders if known else {}
        self._found: dict[str, str] = {}
        self._now = stamps.clock(self._path)

    def is_unchanged(self, name: str, now: Stamp | None) -> bool:
        """Whether this folder of the store was found intact with the stamp `now`."""
        if now is None or self._known.get(name) != now.seal:
            return False
        self._found[name] = now.seal
        return True

    def add(self, name: str, before: Stamp | None, after: Stamp | None) -> None:
        """Record a folder as intact, if nothing changed in it while it was read, or just before."""
        if before is None or before != after or self._now is None:
            return
        if before.newest < self._now - stamps.TICK_NS:
            self._found[name] = before.seal

    def write(self) -> None:
        """Replace the file, if the store is writable and there is anything new."""
        if self._now is None or self._found == self._known:
            return
        with suppress(OSError):  # a full disk: everything is read again
            jsonfile.write(self._path, WholeDocument(folders=self._found), self._path.name)
