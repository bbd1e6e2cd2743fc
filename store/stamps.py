"""Stamps of folders, from the metadata of all their files, and a record of folders that `ablate check` found intact.

    stamp = H(name, mode, inode, size, mtime, ctime of every file)

No program can set a ctime, so a file that was written, replaced or copied has another stamp. File-system clocks are
coarse: a file that changes twice within a tick has one ctime. So a folder is recorded only if its last change was more
than `TICK_NS` before it was read, by the clock of the file system, which may be another machine's.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from store import checksum, jsonfile
from store.documents.sums import CheckedDocument, FileStamp, SumsDocument, WholeDocument
from store.files import StoreError, check_regular

TICK_NS = 2 * 10**9
"""Tick of the coarsest file-system clock, FAT's, in ns."""


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


def checked_name() -> str:
    """Name of the file in which this machine records what it verified."""
    return f"checked-{_machine_name()}.json"


def index_path(root: Path, kind: str) -> Path:
    """The file in which this machine keeps an index of a store (`store.index`)."""
    return root / f"index-{kind}-{_machine_name()}.arrow"


def _machine_name() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", platform.node()) or "unnamed"


GONE, UNKNOWN = (0, 0, 0, 0), (-1, -1, -1, -1)
MOST = 2**63 - 1


def file_stamp(path: str) -> tuple[int, int, int, int]:
    """Inode, size, mtime and ctime of a file; GONE if it does not exist, UNKNOWN if that cannot be told."""
    try:
        found = os.stat(path)  # noqa: PTH116 (a path for each of so many takes longer than the rest)
    except FileNotFoundError:
        return GONE
    except OSError:
        return UNKNOWN
    return found.st_ino & MOST, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def clock(path: Path) -> int | None:
    """The time, in ns since 1970, by the clock of a path's file system; None if its folder is not writable."""
    probe = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        probe.touch()
        found = probe.stat().st_mtime_ns
        probe.unlink()
    except OSError:
        return None
    return found


class WholeFolders:
    """The folders of a store that this machine found intact, in a file that may be removed. An unreadable file, as of
    another version or user, counts as empty."""

    def __init__(self, root: Path) -> None:
        self._path = root / checked_name()
        known = _read(self._path, WholeDocument)
        self._known = known.folders if known else {}
        self._found: dict[str, str] = {}
        self._now = clock(self._path)

    def is_unchanged(self, name: str, now: Stamp | None) -> bool:
        """Whether this folder of the store was found intact with the stamp `now`."""
        if now is None or self._known.get(name) != now.seal:
            return False
        self._found[name] = now.seal
        return True

    def add(self, name: str, before: Stamp | None, after: Stamp | None) -> None:
        """Record a folder as intact, if nothing changed in it while it was read, or just before."""
        if before is not None and before == after and self._now is not None and before.newest < self._now - TICK_NS:
            self._found[name] = before.seal

    def write(self) -> None:
        """Replace the file, if the store is writable and there is anything new."""
        if self._now is None or self._found == self._known:
            return
        with suppress(OSError):  # a full disk: everything is read again
            jsonfile.write(self._path, WholeDocument(folders=self._found), self._path.name)


def _read(path: Path, model: type[jsonfile.AnyDocument]) -> jsonfile.AnyDocument | None:
    """A record of what was checked; None if it cannot be read, as of another version: then everything is read again."""
    with suppress(StoreError, OSError):
        return jsonfile.read(path, model, "")
    return None


# Checksums of folders: contents that changed since they were written are noticed before they are used.
#
# A file is read and hashed at its first use on a machine, and again when its size or ctime has changed.

NAME = "sums.json"


def write(folder: Path, final: Path, *, names: int = 2) -> None:
    """Write the checksums of a folder's files. final: the folder's path once it is complete.

    names: number of trailing components of the path `final / sums.json` that identify the folder.
    """
    found = {path.name: checksum.of_file(path) for path in sorted(folder.iterdir())}
    jsonfile.write(folder / NAME, SumsDocument(sha256=found), jsonfile.place_of(final / NAME, names))


def check(folder: Path, remedy: str, afresh: bool = False) -> None:
    """Raises StoreError, with the remedy, if a file of the folder is missing or has changed.

    afresh: read every file, whatever was checked before, and write nothing: the store may be another user's.
    """
    sums = jsonfile.read(folder / NAME, SumsDocument, remedy)
    if sums is None:
        raise StoreError(f"{folder / NAME} is gone: {remedy}")
    document = folder / checked_name()
    checked = None if afresh else _read(document, CheckedDocument)
    known = checked.files if checked else {}
    stamps = {name: _stamp(folder / name, remedy) for name in sums.sha256}
    changed = [name for name in stamps if known.get(name) != stamps[name]]
    if not changed:
        return
    for name in changed:
        if checksum.of_file(folder / name) != sums.sha256[name]:
            raise StoreError(f"{folder / name} is damaged: {remedy}")
    if afresh:
        return
    with suppress(OSError):  # a folder that is not writable is read again by every command
        jsonfile.write(document, CheckedDocument(files=stamps))


def _stamp(path: Path, remedy: str) -> FileStamp:
    try:
        found = path.stat()
        check_regular(path)
    except FileNotFoundError:
        raise StoreError(f"{path} is gone: {remedy}") from None
    return FileStamp(bytes=found.st_size, modified=found.st_ctime_ns)
