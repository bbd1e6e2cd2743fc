"""Tables of text for figures, pages and exports, also as Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

NONE = "–"
"""A cell without a value."""
Rows = tuple[tuple[str, ...], ...]
T = TypeVar("T")
Columns = Mapping[str, Callable[[T], str]]
"""Functions from a row's object to the text of its cell, by heading."""


@dataclass(frozen=True)
class Table:
    """Rows of text below headings. All columns but the first `labels` hold numbers."""

    columns: tuple[str, ...]
    rows: Rows
    labels: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row has {len(row)} cells, the table {len(self.columns)} columns: {row}")

    @classmethod
    def of(cls, things: Iterable[T], columns: Columns[T], labels: int = 1) -> Table:
        """Table with one row per thing."""
        return frame_table(columns, ([cell(each) for cell in columns.values()] for each in things), labels)

    @property
    def lines(self) -> Rows:
        """Headings, then the rows."""
        return self.columns, *self.rows

    def without_empty(self, among: Iterable[str] | None = None) -> Table:
        """The table without columns that are empty in every row. among: names of the columns that may be dropped; all
        by default."""
        spare = self.columns if among is None else set(among)
        said = [any(row[i] != NONE for row in self.rows) for i in range(len(self.columns))]
        kept = [i for i, name in enumerate(self.columns) if said[i] or name not in spare]
        headings, *rows = (tuple(line[i] for i in kept) for line in self.lines)
        return Table(headings, tuple(rows), self.labels)


def frame_table(columns: Iterable[str], rows: Iterable[Iterable[str]], labels: int = 1) -> Table:
    """Table of headings and rows, from any iterables."""
    return Table(tuple(columns), tuple(tuple(row) for row in rows), labels)


LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"−": "$-$", "–": "--", "±": r"$\pm$", "×": r"$\times$", "‖": r"$\|$", "Δ": r"$\Delta$", "∞": r"$\infty$"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "\n": " "},
        **{power: f"$^{{{digit}}}$" for power, digit in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)},
    }
)
MARKDOWN = str.maketrans({"|": r"\|", "\n": " ", "<": "&lt;", ">": "&gt;", "&": "&amp;", "*": r"\*", "`": r"\`"})


def markdown(table: Table) -> str:
    """A table with a rule under its header; columns of numbers are right-aligned."""
    rule = [":--" if i < table.labels else "--:" for i in range(len(table.columns))]
    lines = [[cell.translate(MARKDOWN) for cell in row] for row in table.lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in (lines[0], rule, *lines[1:]))


def latex(table: Table) -> str:
    """A tabular with booktabs rules."""
    lines = [" & ".join(cell.translate(LATEX) for cell in row) + r" \\" for row in table.lines]
    columns = "".join("l" if i < table.labels else "r" for i in range(len(table.columns)))
    body = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
    return "\n".join([*body, r"\end{tabular}", ""])


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text, header first, as an HTML table without styles."""
    header, *body = rows
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in header)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
