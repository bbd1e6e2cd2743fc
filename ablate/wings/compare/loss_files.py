"""Users' tables, not yet typed: CSV, JSON and parquet files, and frames of polars and pandas."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from store.errors import ArgumentError, reason_of
from store.files import check_regular, read_regular

if TYPE_CHECKING:
    import pandas as pd

STDIN = "-"
UNPACKED_BYTES = 2**30
"""Most that a packed file may unpack to: 13 MB of zeros are 3 GB."""


@dataclass(frozen=True)
class Table:
    """Columns by position, since two may share a name, and the number that identifies each row in messages: in a text
    file, that of its line."""

    names: Sequence[str]
    column: Callable[[int], Sequence[object]]
    rows: Sequence[int]
    remedy: str = ""
    """Advice to add if no column has the right name."""


def read_any(losses: pl.DataFrame | pl.LazyFrame | pd.DataFrame | Path | str) -> Table:
    """The table in a file or a frame. Raises ArgumentError if `losses` is neither, or cannot be read."""
    given: Any = losses
    if isinstance(given, Path | str):
        return _file(Path(given))
    try:
        if isinstance(given, pl.LazyFrame):
            given = given.collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ArgumentError("losses", f"the lazy frame cannot be collected: {reason_of(error)}") from error
    if isinstance(given, pl.DataFrame):
        return _of_polars(given)
    if hasattr(given, "iloc") and hasattr(given, "columns"):
        return _of_pandas(given)
    remedy = ": call its `reset_index()`, or `to_frame()`" if hasattr(given, "to_frame") else ""
    raise ArgumentError("losses", f"expected a frame or a path, not {type(given).__name__}{remedy}")


def _of_polars(frame: pl.DataFrame) -> Table:
    return Table(frame.columns, lambda place: frame[:, place].to_list(), range(1, frame.height + 1))


def _of_pandas(frame: pd.DataFrame) -> Table:
    """Columns of a frame, and named levels of its index whose names no column has."""
    columns = {place: frame.iloc[:, place] for place in range(frame.shape[1])}
    names = [str(name) for name in frame.columns]
    for level, name in enumerate(frame.index.names):
        if isinstance(name, str) and name not in names:
            columns[len(names)] = frame.index.get_level_values(level).to_series()
            names.append(name)

    def column(place: int) -> list[object]:
        given = columns[place]
        return [None if gone else cell for cell, gone in zip(given.tolist(), given.isna(), strict=True)]

    return Table(names, column, range(1, len(frame) + 1))


def _file(path: Path) -> Table:
    if str(path) == STDIN:
        return _delimited(_text(sys.stdin.buffer.read(), path))
    is_packed = path.suffix.lower() == ".gz"
    suffix = Path(path.stem if is_packed else path.name).suffix.lower()
    if suffix not in TEXTS and (is_packed or suffix != ".parquet"):
        known = f"{', '.join(TEXTS)} (or one of these with .gz) or .parquet"
        other = "- for CSV from standard input, or a pattern with {arm} that names logs"
        raise ArgumentError("losses", f"expected a file that ends in {known}, {other}", path)
    try:
        if suffix == ".parquet":
            check_regular(path)
            return _of_polars(pl.read_parquet(path))
        content = content_of(path)
    except (OSError, pl.exceptions.PolarsError, ValueError) as error:
        raise ArgumentError("losses", f"cannot be read: {reason_of(error)}", path) from error
    return TEXTS[suffix](_text(content, path))


def content_of(path: Path) -> bytes:
    """The bytes of a regular file, unpacked if its name ends in `.gz`. Raises OSError or ValueError."""
    if path.suffix.lower() != ".gz":
        return read_regular(path)
    check_regular(path)
    try:
        with gzip.open(path) as file:
            content = file.read(UNPACKED_BYTES + 1)
    except (EOFError, zlib.error) as error:
        raise ValueError(reason_of(error)) from error
    if len(content) > UNPACKED_BYTES:
        raise ValueError(f"unpacks to more than {UNPACKED_BYTES // 2**30} GiB")
    return content


def decoded(content: bytes) -> str:
    """Text in UTF-8, or in UTF-16 as programs of Windows write it. Raises UnicodeDecodeError."""
    return content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")


def separator(header: str) -> str:
    """The mark between columns: the one that the header has most of."""
    return max("\t;|,", key=header.count)


def _text(content: bytes, path: Path) -> str:
    try:
        return decoded(content)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ArgumentError("losses", f"row {line} is not UTF-8: save the file as UTF-8", path) from error


def _delimited(text: str) -> Table:
    """A table with a heading, whatever mark separates its columns. Blank lines, and comments before the heading, are
    skipped. With semicolons, a comma is the point of a decimal. Raises ArgumentError."""
    before = re.match(r"(?:[ \t]*(?:#.*)?\r?\n)*", text)
    start = before.end() if before else 0
    mark = separator(text[start:].partition("\n")[0])
    reader = csv.reader(io.StringIO(text[start:], newline=""), delimiter=mark, strict=True, skipinitialspace=True)
    names: list[str] = []
    rows: list[tuple[str, ...]] = []  # the garbage collector goes through a million lists time and again
    numbers: list[int] = []
    number = first = 1 + text[:start].count("\n")
    try:
        for cells in reader:
            at, number = number, first + reader.line_num
            while len(cells) > len(names) and not cells[-1].strip():  # trailing separators
                cells.pop()
            if not "".join(cells).strip():
                continue
            if not names:
                names = cells
                continue
            if len(cells) != len(names):
                raise ArgumentError("losses", f"row {at}: {_ragged(cells, names, mark)}")
            rows.append(tuple(DECIMAL.sub(r"\1.\2", cell) for cell in cells) if mark == ";" else tuple(cells))
            numbers.append(at)
    except csv.Error as error:
        said = "a quote is not closed" if "unexpected end" in str(error) else str(error)
        raise ArgumentError("losses", f"row {number}: {said}") from error
    if not names:
        raise ArgumentError("losses", "is empty: expected a header with the columns arm, seed and loss")
    remedy = " (a first line that begins with # counts as a comment)" if "#" in text[:start] else ""
    return Table(names, lambda place: [row[place] for row in rows], numbers, remedy)


DECIMAL = re.compile(r"^\s*([-+]?\d+),(\d+(?:[eE][-+]?\d+)?)\s*$")


def _ragged(cells: Sequence[str], names: Sequence[str], mark: str) -> str:
    """Message for a row that is longer or shorter than the heading, with the remedy."""
    if cells[0].lstrip().startswith("#"):
        return "is a comment: delete the line"
    found = f"{len(cells)} cell{'s' * (len(cells) > 1)}, but the header has {len(names)}"
    name = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}[mark]
    if len(cells) < len(names):
        return f"{found}: write a {name} for each empty cell"
    return f"{found}: write decimals with a point, and quote text that contains a {name}"


def _json_lines(text: str) -> Table:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    return _of_records([(number, _decoded(line, f"row {number}: ")) for number, line in lines])


def _json(text: str) -> Table:
    found = _decoded(text, "")
    if not isinstance(found, list):
        remedy = "as `frame.to_json(path, orient='records')` writes them"
        raise ArgumentError("losses", f"expected a list of records, {remedy}")
    return _of_records(list(enumerate(found, 1)))


def _decoded(text: str, place: str) -> Any:
    """Parse JSON, including NaN and Infinity as Python writes them. Raises ArgumentError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        more = "; a file with one record per line must end in .jsonl" if error.msg == "Extra data" else ""
        raise ArgumentError("losses", f"{place}is not JSON: {error.msg}{more}") from error
    except (ValueError, RecursionError) as error:
        raise ArgumentError("losses", f"{place}cannot be read: {reason_of(error)}") from error


def _of_records(records: Sequence[tuple[int, Any]]) -> Table:
    for number, record in records:
        if not isinstance(record, dict):
            wanted = '{"arm": "pre", "seed": 0, "loss": 4.1}'
            raise ArgumentError("losses", f"row {number}: expected a record such as {wanted}")
    names = list(dict.fromkeys(name for _, record in records for name in record))
    numbers = [number for number, _ in records]
    return Table(names, lambda place: [record.get(names[place]) for _, record in records], numbers)


TEXTS: dict[str, Callable[[str], Table]] = {
    ".csv": _delimited,
    ".tsv": _delimited,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
}
"""Readers of text files by suffix."""
