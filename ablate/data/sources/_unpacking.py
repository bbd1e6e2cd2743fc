"""Read plain files and files compressed by gzip or zstandard; truncated ones raise."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self, cast

import zstandard

from ablate.data.sources._records import no_json
from store.errors import DataError

PACKED = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
"""Magic bytes of the compression formats, by suffix."""
BROKEN = (OSError, EOFError, zlib.error, zstandard.ZstdError)
"""Errors of reading a compressed file that is damaged or truncated."""
LARGEST_WINDOW = 1 << 31
"""zstd's own limit (`--long=31`), in bytes. Memory is allocated only for files compressed with such a window."""
AT_ONCE = 1 << 17
HEAD_BYTES = 4096


def packing(path: Path) -> str:
    """Suffix of the compression, from the file's name or else its magic bytes; empty if the file is plain."""
    if path.suffix.lower() in PACKED:
        return path.suffix.lower()
    with path.open("rb") as file:
        start = file.read(4)
    return next((suffix for suffix, magic in PACKED.items() if start.startswith(magic)), "")


def unpacked(path: Path) -> IO[bytes]:
    """A stream of the decompressed content. Reading raises one of `BROKEN` if the file is damaged or truncated."""
    match packing(path):
        case ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        case ".zst":
            return io.BufferedReader(_Zstandard(path.open("rb")), AT_ONCE)
    return path.open("rb")


def head_of(path: Path) -> bytes:
    """The first `HEAD_BYTES` of the decompressed content.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with unpacked(path) as stream:
            return stream.read(HEAD_BYTES)
    except BROKEN as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"cannot read {path}: {error}")


class _Zstandard(io.RawIOBase):
    """Stream over consecutive zstd frames. The library's own stream ends silently where a file is truncated."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._parts, self._rest = file, _frames(file), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = next(self._parts, b"")
        view = memoryview(buffer)
        count = min(len(view), len(self._rest))
        view[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _frames(file: IO[bytes]) -> Iterator[bytes]:
    frame = None
    while packed := file.read(AT_ONCE):
        while packed:
            frame = frame or zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW).decompressobj()
            if part := frame.decompress(packed):
                yield part
            packed = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("truncated: it ends inside a zstd frame")


# WebDataset tars: adjacent members whose names agree up to the first dot, such as `000012.json`, are one sample.

Member = tuple[str, str, bytes]
"""(key of the sample, rest of the name, content)."""
TAR_AT_ONCE = 1 << 20


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
        while rest := archive.fileobj.read(TAR_AT_ONCE):
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
