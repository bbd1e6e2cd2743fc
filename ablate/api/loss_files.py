"""Users' tables, not yet typed: CSV, JSON and parquet files, and frames of polars and pandas."""

from __future__ import annotations

import csv
import gzip
import io
import json
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
        return _delimited(_text(sys.stdin.buffer.read(), path), ",")
    is_packed = path.suffix.lower() == ".gz"
    suffix = Path(path.stem if is_packed else path.name).suffix.lower()
    if suffix not in TEXTS and (is_packed or suffix != ".parquet"):
        known = f"{', '.join(TEXTS)} (or one of these with .gz) or .parquet"
        raise ArgumentError("losses", f"expected a file that ends in {known}, or - for CSV from standard input", path)
    try:
        check_regular(path)
        if suffix == ".parquet":
            return _of_polars(pl.read_parquet(path))
        content = read_regular(path)
        content = gzip.decompress(content) if is_packed else content
    except (OSError, EOFError, zlib.error, pl.exceptions.PolarsError, ValueError) as error:
        raise ArgumentError("losses", f"cannot be read: {reason_of(error)}", path) from error
    return TEXTS[suffix](_text(content, path))


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ArgumentError("losses", f"row {line} is not UTF-8: save the file as UTF-8", path) from error


def _delimited(text: str, mark: str) -> Table:
    """A table with a heading; blank lines are skipped. Raises ArgumentError."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True, skipinitialspace=True)
    names: list[str] = []
    rows: list[list[str]] = []
    numbers: list[int] = []
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            said = "a quote is not closed" if "unexpected end" in str(error) else str(error)
            raise ArgumentError("losses", f"row {number}: {said}") from error
        if cells is None:
            break
        if not any(map(str.strip, cells)):
            continue
        _drop_empty_end(cells, len(names))
        if names:
            if len(cells) != len(names):
                raise ArgumentError("losses", f"row {number}: {_ragged(cells, names, mark)}")
            rows.append(cells)
            numbers.append(number)
        else:
            names = cells
    if not names:
        raise ArgumentError("losses", "is empty: expected a header with the columns arm, seed and loss")
    return Table(names, lambda place: [row[place] for row in rows], numbers, _separator(names, mark))


def _drop_empty_end(cells: list[str], width: int) -> None:
    """Drop empty cells beyond `width`, which trailing separators create."""
    while len(cells) > width and not cells[-1].strip():
        cells.pop()


def _ragged(cells: Sequence[str], names: Sequence[str], mark: str) -> str:
    """Message for a row that is longer or shorter than the heading, with the remedy."""
    if cells[0].lstrip().startswith("#"):
        return "is a comment: delete the line"
    found = f"{len(cells)} cell{'s' * (len(cells) > 1)}, but the header has {len(names)}"
    if remedy := _separator(names, mark):
        return found + remedy
    name = {",": "comma", "\t": "tab"}[mark]
    if len(cells) < len(names):
        return f"{found}: write a {name} for each empty cell"
    return f"{found}: write decimals with a point, and quote text that contains a {name}"


def _separator(names: Sequence[str], mark: str) -> str:
    """Remedy for a table with another separator or a comment as its first line; empty for any other."""
    if names[0].lstrip().startswith("#"):
        return " (the first line is a comment: delete it, or its #)"
    others = {";": "semicolons", "\t": "tabs", ",": "commas"}
    found = next((word for other, word in others.items() if other != mark and other in names[0]), None)
    wanted = others[mark]
    return f" (columns seem to be separated by {found}; use {wanted}, and a point for decimals)" if found else ""


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
    ".csv": lambda text: _delimited(text, ","),
    ".tsv": lambda text: _delimited(text, "\t"),
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
}
"""Readers of text files by suffix."""
