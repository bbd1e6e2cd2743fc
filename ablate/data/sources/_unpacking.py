"""Read plain files and files compressed by gzip or zstandard; truncated ones raise."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import zstandard

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
