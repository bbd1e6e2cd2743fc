"""Read the documents of one file: text, JSON, a table, parquet, Arrow or a tar.

All but parquet and Arrow may be compressed by gzip or zstandard; truncated files raise.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, Self, cast

import zstandard

from ablate.data.sources._records import BEGINS, DELIMITERS, cells, no_json, records, string, text_of
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


Format = Literal["text", "JSON", "CSV", "parquet", "Arrow", "tar"]
COLUMNED: set[Format] = {"JSON", "CSV", "parquet", "Arrow", "tar"}

LINES = {".jsonl", ".ndjson"}
TEXT = {".txt", ".md", ".parquet", ".arrow", ".mds", ".tar", *LINES}
"""Suffixes of the files read from a folder."""
JSON = {".json", *LINES}
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # begins like UTF-16
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by byte-order mark."""
FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"%PDF-": "a PDF",
    b"{\\rtf": "RTF",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"7z\xbc\xaf": "a 7z archive",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "HDF5",
    b"Obj\x01": "Avro",
    b"\x93NUMPY": "an array of numpy (for token ids: data.source=tokens)",
    b"\x80\x04\x95": "a pickle",
}
"""Magic bytes of formats that are refused."""


OF_SHARDS = (
    "is a shard of MosaicML streaming, which is not read: write its samples as JSON lines with"
    ' `python -c "import json, streaming; [print(json.dumps(each)) for each in'
    " streaming.StreamingDataset(local='{folder}')]\"`"
)


def is_text(path: Path) -> bool:
    """Whether a file in a folder is read. Compressed .json is (C4's format); plain .json, common among code, is not."""
    packed = path.suffix.lower() in PACKED
    if path.name.startswith("cache-"):  # what datasets computed from the files beside it
        return False
    return kind(path) in (TEXT | {".json"} if packed else TEXT) and not path.name.startswith(".")


def kind(path: Path) -> str:
    """The suffix in lower case, ignoring that of a compression."""
    name = path.name.lower()
    return Path(name.removesuffix(path.suffix.lower()) if path.suffix.lower() in PACKED else name).suffix


def recognised(path: Path) -> Format:
    """A file's format, from its suffix or its first bytes.

    Raises:
        DataError: the file cannot be read, or has an unsupported format (`FOREIGN`).
    """
    head, suffix = head_of(path), kind(path)
    if ".mds" in path.suffixes:
        raise DataError(f"{path} {OF_SHARDS.format(folder=path.parent)}")
    if head.startswith(b"ARROW1") or suffix == ".arrow":
        return "Arrow"
    foreign = next((name for magic, name in FOREIGN.items() if head.startswith(magic)), None)
    if foreign:
        raise DataError(f"{path} is {foreign}, which is not supported: unpack or convert it to text")
    if head.startswith(b"PAR1") or suffix == ".parquet":
        return "parquet"
    if head[257:262] == b"ustar" or suffix == ".tar":
        return "tar"
    if suffix in DELIMITERS:
        return "CSV"
    if suffix in JSON or BEGINS.match(head.decode(encoding_of(head, path), errors="ignore")):
        return "JSON"
    return "text"


def encoding_of(head: bytes, path: Path) -> str:
    """The encoding given by a byte-order mark; UTF-8 without one.

    Raises:
        DataError: there is no mark and more than a quarter of the bytes are zero.
    """
    for mark, name in MARKS.items():
        if head.startswith(mark):
            return name
    if len(head) > 1 and head.count(0) > len(head) // 4 and head[257:262] != b"ustar":
        raise DataError(f"{path} has many zero bytes: it is not UTF-8 text (UTF-16 needs a byte-order mark)")
    return "utf-8"


def read(path: Path, column: str, format: Format | None = None) -> Iterator[str]:
    """The documents of `path`; `column` holds the text in formats with columns. Null texts are left out.

    format: None to recognise it.

    Raises:
        DataError: the file cannot be read, is not of the format, or has no such column.
    """
    format = format or recognised(path)
    if format in ("parquet", "Arrow"):
        from ablate.data.sources import _parquet  # noqa: PLC0415 (pyarrow takes 0.1 s to load)

        if packing(path):
            raise DataError(f"{path} is a compressed {format} file: decompress it")
        rows = _parquet.rows if format == "parquet" else _parquet.arrow_rows
        yield from (string(value, column, str(path)) for value in rows(path, column))
        return
    try:
        with unpacked(path) as stream:
            if format == "tar":
                found = (text for text in texts(stream, path, column) if text is not None)
                yield from (string(text, column, str(path)) for text in found)
            else:
                yield from _documents(stream, format, path, column)
    except UnicodeDecodeError as error:
        if 0 in head_of(path) and error.encoding.startswith("utf-8"):
            reason = "is in a binary format that is not read: convert it to text, JSON lines or parquet"
            raise DataError(f"{path} {reason}") from error
        raise DataError(f"{path} is not {error.encoding.upper()} text: {error} (convert it with iconv)") from error
    except BROKEN as error:
        raise unreadable(path, error) from error


def _documents(stream: IO[bytes], format: Format, path: Path, column: str) -> Iterator[str]:
    encoding = encoding_of(head_of(path), path)
    if format == "text":
        yield stream.read().decode(encoding)
    elif format == "CSV":
        with io.TextIOWrapper(stream, encoding, newline="") as table:  # line ends inside quotes stay as they are
            yield from cells(table, str(path), kind(path), column)
    else:
        # accept lone surrogates, as `json.loads` does for bytes
        errors = "surrogatepass" if encoding == "utf-8" else "strict"
        with io.TextIOWrapper(stream, encoding, errors) as lines:
            found = (text_of(record, column, where) for where, record in records(lines, str(path)))
            yield from (text for text in found if text is not None)
