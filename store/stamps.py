"""Checksums of folders: contents that changed since they were written are noticed before they are used.

A file is read and hashed at its first use on a machine, and again when its size or ctime has changed: no program can
set a ctime. File-system clocks are coarse: a file that changes twice within a tick has one ctime.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
from contextlib import suppress
from pathlib import Path

from store import checksum, jsonfile
from store.documents.data import CheckedDocument, FileStamp, SumsDocument
from store.files import StoreError, check_regular

TICK_NS = 2 * 10**9
"""Tick of the coarsest file-system clock, FAT's, in ns."""


def checked_name() -> str:
    """Name of the file in which this machine records what it verified."""
    return f"checked-{_machine_name()}.json"


def index_path(root: Path, kind: str) -> Path:
    """The file in which this machine keeps an index of a store."""
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


def read_record(path: Path, model: type[jsonfile.AnyDocument]) -> jsonfile.AnyDocument | None:
    """A record of what was checked; None if it cannot be read, as of another version: then everything is read again."""
    with suppress(StoreError, OSError):
        return jsonfile.read(path, model, "")
    return None


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
    checked = None if afresh else read_record(document, CheckedDocument)
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
