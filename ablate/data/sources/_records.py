"""Text in records: JSON records, and tables whose first line names the columns."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO, Any

from store.errors import DataError

BEGINS = re.compile(r'\s*(\{\s*["}]|\[\s*[{"])')
"""Beginning of JSON that holds text; plain text hardly ever begins so."""
_NO_SPACE = re.compile(r"\S")

Record = tuple[str, Any]
"""(location for messages, value)."""


def records(stream: IO[str], name: str) -> Iterator[Record]:
    """Every record in order; arrays are flattened.

    Raises:
        DataError: the stream is not JSON.
    """
    for number, line in enumerate(stream, start=1):
        if line.strip():
            lines = enumerate(chain((line,), stream), start=number)
            yield from _lines(lines, name) if _is_object(line) else _values(line + stream.read(), number, name)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _lines(lines: Iterator[tuple[int, str]], name: str) -> Iterator[Record]:
    for number, line in lines:
        if line.strip():
            where = f"{name}, line {number}"
            try:
                yield where, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise no_json(where, error) from error


def _values(text: str, line: int, name: str) -> Iterator[Record]:
    """Values that may span or share lines. line: number of the first line."""
    decoder, at = json.JSONDecoder(), 0
    while found := _NO_SPACE.search(text, at):
        start = found.start()
        line += text.count("\n", at, start)
        where = f"{name}, line {line}"
        try:
            value, at = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            line += text.count("\n", start, error.pos)
            raise no_json(f"{name}, line {line}", error) from error
        except (ValueError, RecursionError) as error:  # ValueError: an integer with thousands of digits
            raise no_json(where, error) from error
        line += text.count("\n", start, at)
        yield from ((where, each) for each in (value if isinstance(value, list) else (value,)))


def no_json(where: str, error: Exception) -> DataError:
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return DataError(f"{where} is not JSON: {reason}")


def text_of(record: object, column: str, where: str) -> str | None:
    """The text of a record; None if it is null.

    Raises:
        DataError: the record is no object, has no such column, or the value is not text.
    """
    if not isinstance(record, dict):
        raise DataError(f"{where} is not a JSON object: set data.format to text")
    if column not in record:
        raise no_column(where, column, record)
    value = record[column]
    return None if value is None else string(value, column, where)


def no_column(where: str, column: str, there: Iterable[str]) -> DataError:
    remedy = "set data.column, or data.format to text"
    return DataError(f"{where} has no column {column!r}; columns: {', '.join(there) or 'none'} ({remedy})")


def string(value: Any, column: str, where: str) -> str:
    """`value`. Raises DataError if it is not a string."""
    if not isinstance(value, str):
        raise DataError(f"{where}: column {column!r} holds {type(value).__name__}, not text")
    return value


DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
"""Possible cell delimiters, by the file's suffix."""
LARGEST_CELL = (1 << 31) - 1


def cells(stream: IO[str], name: str, suffix: str, column: str) -> Iterator[str]:
    """Cells of `column`, row by row.

    Raises:
        DataError: there is no such column, a row has more or fewer cells than the header, or a quote is not closed.
    """
    csv.field_size_limit(LARGEST_CELL)  # the default of 131,072 characters is too short for documents
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
                raise DataError(f"{where} has {len(row)} cells, but the first line names {len(columns)} columns")
            if row:
                yield row[place]
    except csv.Error as error:
        raise DataError(f"{name}, line {1 + rows.line_num} is not {suffix}: {error}") from error
