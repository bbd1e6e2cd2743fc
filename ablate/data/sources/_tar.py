"""WebDataset tars: adjacent members whose names agree up to the first dot, such as `000012.json`, are one sample."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import IO, Self

from ablate.data.sources._records import no_json
from store.errors import DataError

Member = tuple[str, str, bytes]
"""(key of the sample, rest of the name, content)."""
AT_ONCE = 1 << 20


class _Header(tarfile.TarInfo):
    """A member's header. Raises ReadError for a broken one, which tarfile takes for the end of the archive (zeros)."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf and not any(buf):
                raise
            raise tarfile.ReadError(f"truncated, or damaged after a member ({error})") from error


def texts(stream: IO[bytes], path: Path, column: str) -> Iterator[object]:
    """The text of each sample: its `.txt`, else its `.<column>`, else that column of its `.json`.

    Raises:
        DataError: the stream is not a complete tar, has a link in it, or a sample has none of the three.
    """
    try:
        for key, members in groupby(_members(stream, path), key=lambda member: member[0]):
            yield _text({suffix: content for _, suffix, content in members}, column, f"{path}: {key}")
    except tarfile.TarError as error:
        raise DataError(f"{path} is not a complete tar: {error}") from error


def _members(stream: IO[bytes], path: Path) -> Iterator[Member]:
    # mode "r|": the stream cannot seek
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
        for member in archive:
            if member.islnk() or member.issym():  # the target may lie further back, or outside the archive
                raise DataError(f"{path}: {member.name} is a link to {member.linkname}: pack the file itself")
            file = archive.extractfile(member)  # None for a folder
            if file is not None:
                name = PurePosixPath(member.name)
                stem, _, suffix = name.name.partition(".")
                yield str(name.parent / stem), suffix, file.read()
        while rest := archive.fileobj.read(AT_ONCE):
            if any(rest):
                raise DataError(f"{path}: there is data after the end of the archive: unpack it, or repack it as one")


def _text(sample: dict[str, bytes], column: str, where: str) -> object:
    """The text of a sample; None if the column is null."""
    for suffix in ("txt", column):
        if suffix in sample:
            return sample[suffix].decode("utf-8-sig")
    try:
        record = json.loads(sample["json"]) if "json" in sample else None
    except (ValueError, RecursionError) as error:
        raise no_json(f"{where}.json", error) from error
    if not isinstance(record, dict) or column not in record:
        there = ", ".join([*sample, *(f"json with {name}" for name in (record if isinstance(record, dict) else ()))])
        raise DataError(f"{where} has no .txt, no .{column} and no {column!r} in a .json; found: {there}")
    return record[column]
