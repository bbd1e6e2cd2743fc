"""Read the documents of one file: text, JSON, a table, parquet, Arrow or a tar; all but parquet and Arrow may be
compressed."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

from ablate.data.sources._records import BEGINS, DELIMITERS, cells, records, string, text_of
from ablate.data.sources._unpacking import BROKEN, PACKED, head_of, packing, texts, unpacked, unreadable
from store.errors import DataError

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
