"""Documents of one file, by what is in it: text, JSON, a table, parquet or a tar, each perhaps packed."""

from __future__ import annotations

import codecs
import csv
import io
import json
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, Self

from ablate.data.sources._json import BEGINS, no_column, no_json, records, string, text_of
from ablate.data.sources._unpacking import BROKEN, PACKED, head_of, packing, unpacked, unreadable
from ablate.errors import DataError

Format = Literal["text", "JSON", "CSV", "parquet", "tar"]
COLUMNED: set[Format] = {"JSON", "CSV", "parquet", "tar"}

LINES = {".jsonl", ".ndjson"}
TEXT = {".txt", ".md", ".parquet", ".tar", *LINES}
"""Suffixes of the files that are read from a folder."""
JSON = {".json", *LINES}
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # begins like UTF-16
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte-order marks."""
FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"%PDF-": "a PDF",
    b"{\\rtf": "RTF",
    b"BZh": "packed by bzip2",
    b"\xfd7zXZ": "packed by xz",
}
"""Beginnings of files that are not text, and whose text is not read."""


def is_text(path: Path) -> bool:
    """Whether a file of a folder is meant to be read. Packed .json is, as of C4: what lies among code is not packed."""
    packed = path.suffix.lower() in PACKED
    return kind(path) in (TEXT | {".json"} if packed else TEXT) and not path.name.startswith(".")


def kind(path: Path) -> str:
    """The suffix, of what is packed without that of the packing."""
    name = path.name.lower()
    return Path(name.removesuffix(path.suffix.lower()) if path.suffix.lower() in PACKED else name).suffix


def recognised(path: Path) -> Format:
    """A file's format. Suffixes that promise one are believed; otherwise what the file begins with decides.

    Raises:
        DataError: it cannot be read, or has a format that is known and not read.
    """
    head, suffix = head_of(path), kind(path)
    if head.startswith(b"PAR1") or suffix == ".parquet":
        return "parquet"
    if head[257:262] == b"ustar" or suffix == ".tar":
        return "tar"
    if suffix in DELIMITERS:
        return "CSV"
    if suffix in JSON or BEGINS.match(head.decode(encoding_of(head, path), errors="ignore")):
        return "JSON"
    foreign = next((name for magic, name in FOREIGN.items() if head.startswith(magic)), None)
    if foreign:
        raise DataError(f"{path} is {foreign}, which is not read: unpack or convert it to text")
    return "text"


def encoding_of(head: bytes, path: Path) -> str:
    """The encoding that a byte-order mark tells; UTF-8 without one.

    Raises:
        DataError: every other byte is zero.
    """
    for mark, name in MARKS.items():
        if head.startswith(mark):
            return name
    if len(head) > 1 and head.count(0) > len(head) // 4 and head[257:262] != b"ustar":
        raise DataError(f"{path} has many zero bytes: it is not UTF-8 text (UTF-16 is read where it has a mark)")
    return "utf-8"


def read(path: Path, column: str, format: Format | None = None) -> Iterator[str]:
    """The documents of `path`; `column` names the text in all that has columns. Null texts are left out.

    format: what it is read as; None for what it is.

    Raises:
        DataError: the file cannot be read, is not what it promises, or has no such column.
    """
    format = format or recognised(path)
    if format == "parquet":
        if packing(path):
            raise DataError(f"{path} is a packed parquet file: unpack it")
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
        # json's own reading of bytes takes halves of surrogate pairs
        errors = "surrogatepass" if encoding == "utf-8" else "strict"
        with io.TextIOWrapper(stream, encoding, errors) as lines:
            found = (text_of(record, column, where) for where, record in records(lines, str(path)))
            yield from (text for text in found if text is not None)


def rows(path: Path, column: str) -> Iterator[Any]:
    """The values of `column` that are not null, a few at a time.

    Raises:
        DataError: `path` is no parquet file, or has no such column.
    """
    import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: PLC0415 (takes 0.1 s to load)

    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path} is not a parquet file: {error}") from error
    with file:
        names = file.schema_arrow.names
        if column not in names:
            raise DataError(f"{path} has no column {column!r}; there is: {', '.join(names)}")
        for batch in file.iter_batches(batch_size=64, columns=[column]):
            yield from (value for value in batch.column(0).to_pylist() if value is not None)


DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
"""What may stand between cells, by the file's suffix."""
LARGEST_CELL = (1 << 31) - 1


def cells(stream: IO[str], name: str, suffix: str, column: str) -> Iterator[str]:
    """Cells of `column`, row by row.

    Raises:
        DataError: there is no such column, a row has more or fewer cells, or a quote is not closed.
    """
    csv.field_size_limit(LARGEST_CELL)  # 131,072 characters otherwise, and documents are longer
    first = stream.readline()
    line = first.strip("\r\n")
    heads = [(mark, next(csv.reader(io.StringIO(line), delimiter=mark), [])) for mark in DELIMITERS[suffix]]
    mark, columns = next((head for head in heads if column in head[1]), heads[0])
    if column not in columns:
        raise no_column(name, column, columns)
    place, rows = columns.index(column), csv.reader(stream, delimiter=mark, strict=True)
    try:
        for row in rows:
            if row and len(row) != len(columns):
                where = f"{name}, line {1 + rows.line_num}"
                raise DataError(f"{where} has {len(row)} cells, and the first line names {len(columns)} columns")
            if row:
                yield row[place]
    except csv.Error as error:
        raise DataError(f"{name}, line {1 + rows.line_num} is not {suffix}: {error}") from error


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
