"""Documents of one file, by its suffixes: plain text, .jsonl, .parquet, .tar, each perhaps .gz or .zst."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import zstandard

from ablate.data.sources._tar import texts
from ablate.errors import DataError

LINES = {".jsonl", ".ndjson"}
TEXT = {".txt", ".md", ".parquet", ".tar", *LINES}
"""Suffixes of the files that are read from a folder."""
PACKED = {".gz", ".zst"}


def is_text(path: Path) -> bool:
    """Whether a file of a folder is meant to be read."""
    return _kind(path) in TEXT and not path.name.startswith(".")


def _kind(path: Path) -> str:
    """The suffix, of what is packed without that of the packing."""
    return Path(path.name.removesuffix(path.suffix)).suffix if path.suffix in PACKED else path.suffix


def read(path: Path, column: str) -> Iterator[str]:
    """The documents of `path`; `column` names the text in .jsonl and .parquet. Null texts are left out.

    Raises:
        DataError: the file cannot be read, is not what its suffix says, or has no such column.
    """
    packing = path.suffix if path.suffix in PACKED else ""
    kind = _kind(path)
    try:
        if kind == ".parquet" and not packing:
            from ablate.data.sources._parquet import rows  # noqa: PLC0415 (pyarrow takes 0.1 s to load)

            yield from (string(value, column, str(path)) for value in rows(path, column))
            return
        with _opened(path, packing) as stream:
            if kind == ".tar":
                found = (text for text in texts(stream, path, column) if text is not None)
                yield from (string(text, column, str(path)) for text in found)
            else:
                yield from _json_lines(stream, path, column) if kind in LINES else _text(stream)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}") from error
    except (OSError, EOFError, zstandard.ZstdError) as error:  # gzip raises these for what is no gzip
        raise DataError(f"cannot read {path}: {error}") from error


def _opened(path: Path, packing: str) -> IO[bytes]:
    if packing == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if packing == ".zst":
        raw = path.open("rb")
        reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True, closefd=True)
        return io.BufferedReader(cast(io.RawIOBase, reader))
    return path.open("rb")


def _text(stream: IO[bytes]) -> Iterator[str]:
    yield stream.read().decode()


def _json_lines(stream: IO[bytes], path: Path, column: str) -> Iterator[str]:
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"{where} is not JSON: {error}") from error
        if not isinstance(record, dict) or column not in record:
            keys = ", ".join(record) if isinstance(record, dict) else "no object"
            raise DataError(f"{where} has no column {column!r}; there is: {keys}")
        if record[column] is not None:
            yield string(record[column], column, where)


def string(value: Any, column: str, where: str) -> str:
    """`value`, where it is text."""
    if not isinstance(value, str):
        raise DataError(f"{where}: column {column!r} holds {type(value).__name__}, not text")
    return value
