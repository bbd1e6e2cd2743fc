"""Tables as text: .csv and .tsv, whose first line names the columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import IO

from ablate.data.sources._json import no_column
from store.errors import DataError

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
