"""WebDataset tars: members of one name up to its first dot are one sample, `000012.txt` or `000012.json`."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import IO, Self

from ablate.data.sources._json import no_json
from ablate.errors import DataError

Member = tuple[str, str, bytes]
"""The sample's key, the rest of the name, and the content."""
AT_ONCE = 1 << 20


class _Header(tarfile.TarInfo):
    """A member's header; tarfile takes one that is cut or broken for the end of the archive, which is zeros."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf and not any(buf):
                raise
            raise tarfile.ReadError(f"cut, or broken after a member ({error})") from error


def texts(stream: IO[bytes], path: Path, column: str) -> Iterator[object]:
    """One text for each sample: its `.txt`, or `.<column>`, or that column of its `.json`.

    Raises:
        DataError: it is no whole tar, or a sample has none of them.
    """
    try:
        for key, members in groupby(_members(stream, path), key=lambda member: member[0]):
            yield _text({suffix: content for _, suffix, content in members}, column, f"{path}: {key}")
    except tarfile.TarError as error:
        raise DataError(f"{path} is not a whole tar: {error}") from error


def _members(stream: IO[bytes], path: Path) -> Iterator[Member]:
    # read once from the start, as streams must be
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
        for member in archive:
            if member.islnk() or member.issym():  # what it names may be behind, or in no archive
                raise DataError(f"{path}: {member.name} is a link to {member.linkname}: pack the file itself")
            file = archive.extractfile(member)  # None of a folder
            if file is not None:
                name = PurePosixPath(member.name)
                stem, _, suffix = name.name.partition(".")
                yield str(name.parent / stem), suffix, file.read()
        while rest := archive.fileobj.read(AT_ONCE):
            if any(rest):
                raise DataError(f"{path}: more follows the end of the archive: unpack it, or pack it as one")


def _text(sample: dict[str, bytes], column: str, where: str) -> object:
    """None where the column is null."""
    for suffix in ("txt", column):
        if suffix in sample:
            return sample[suffix].decode("utf-8-sig")
    try:
        record = json.loads(sample["json"]) if "json" in sample else None
    except (ValueError, RecursionError) as error:
        raise no_json(f"{where}.json", error) from error
    if not isinstance(record, dict) or column not in record:
        there = ", ".join([*sample, *(f"json with {name}" for name in (record if isinstance(record, dict) else ()))])
        raise DataError(f"{where} has no .txt, no .{column} and no {column!r} in a .json; there is: {there}")
    return record[column]
