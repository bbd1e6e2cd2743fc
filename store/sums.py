"""Checksums of folders: contents that changed since they were written are noticed before they are used.

A file is read and hashed at its first use on a machine, and again when its size or ctime has changed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from store import checksum, jsonfile
from store.documents.sums import CheckedDocument, FileStamp, SumsDocument
from store.files import StoreError, check_regular
from store.stamps import checked_name

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
    known = {} if afresh else _known(document)
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


def _known(document: Path) -> dict[str, FileStamp]:
    """Stamps of checked files. If the list cannot be read, as of another version, none: all files are read again."""
    try:
        found = jsonfile.read(document, CheckedDocument, "")
    except (StoreError, OSError):
        return {}
    return found.files if found else {}


def _stamp(path: Path, remedy: str) -> FileStamp:
    try:
        found = path.stat()
        check_regular(path)
    except FileNotFoundError:
        raise StoreError(f"{path} is gone: {remedy}") from None
    return FileStamp(bytes=found.st_size, modified=found.st_ctime_ns)
