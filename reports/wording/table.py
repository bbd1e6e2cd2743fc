"""Tables of text, as figures, pages and exports show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

NONE = "–"
"""A cell without a value."""
Rows = tuple[tuple[str, ...], ...]
T = TypeVar("T")
Columns = Mapping[str, Callable[[T], str]]
"""Text of a thing's cell, by heading."""


@dataclass(frozen=True)
class Table:
    """Rows of text below headings; every column but the first `labels` is of numbers."""

    columns: tuple[str, ...]
    rows: Rows
    labels: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row has {len(row)} cells, the table {len(self.columns)} columns: {row}")

    @classmethod
    def of(cls, things: Iterable[T], columns: Columns[T], labels: int = 1) -> Table:
        """Table with one row for each thing."""
        return frame_table(columns, ([cell(each) for cell in columns.values()] for each in things), labels)

    @property
    def lines(self) -> Rows:
        """Headings, then the rows."""
        return self.columns, *self.rows

    def without_empty(self, among: Iterable[str] | None = None) -> Table:
        """Without columns that have no value in any row; `among` names those that may be left out, by default all."""
        spare = self.columns if among is None else set(among)
        said = [any(row[i] != NONE for row in self.rows) for i in range(len(self.columns))]
        kept = [i for i, name in enumerate(self.columns) if said[i] or name not in spare]
        headings, *rows = (tuple(line[i] for i in kept) for line in self.lines)
        return Table(headings, tuple(rows), self.labels)


def frame_table(columns: Iterable[str], rows: Iterable[Iterable[str]], labels: int = 1) -> Table:
    """Table of headings and rows of any kind."""
    return Table(tuple(columns), tuple(tuple(row) for row in rows), labels)
