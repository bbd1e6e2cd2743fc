"""The compatibility matrix as a page: combinations that are refused, with reasons, and the whole table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.page.html.templating import render_plain


@dataclass(frozen=True)
class Reason:
    """Reason why some choices cannot be combined; the table refers to it by `number`."""

    number: int
    text: str
    pairs: tuple[str, ...]


@dataclass(frozen=True)
class MatrixCell:
    """A pair of choices. On the same axis they exclude each other; else they are refused for a reason, or allowed
    (None)."""

    same_axis: bool
    reason: Reason | None


@dataclass(frozen=True)
class MatrixRow:
    axis: str
    name: str
    cells: tuple[MatrixCell, ...]


def render_matrix(axes: Mapping[str, list[str]], conflicts: Mapping[str, list[list[str]]]) -> str:
    """The page as HTML text. axes: choices by axis. conflicts: excluded pairs [axis, choice, axis, choice] by
    reason."""
    choices = [(axis, name) for axis, names in axes.items() for name in names]
    reasons = [Reason(number, text, _pairs(rows)) for number, (text, rows) in enumerate(conflicts.items(), start=1)]
    refused: dict[Any, Reason] = {}  # by pair of (axis, choice), in both orders
    for reason, excluded in zip(reasons, conflicts.values(), strict=True):
        for axis, name, other, choice in excluded:
            refused[(axis, name), (other, choice)] = refused[(other, choice), (axis, name)] = reason
    rows = [
        MatrixRow(
            axis, name, tuple(MatrixCell(axis == other[0], refused.get(((axis, name), other))) for other in choices)
        )
        for axis, name in choices
    ]
    pairs = sum(not cell.same_axis for row in rows for cell in row.cells) // 2
    return render_plain(
        "matrix.html.j2",
        ("matrix.css",),
        own=Path(__file__).parent / "templates",
        axes=axes,
        rows=rows,
        reasons=reasons,
        pairs=pairs,
        refused=len(refused) // 2,
    )


def _pairs(rows: list[list[str]]) -> tuple[str, ...]:
    """`mixer mla with mixer.kv_heads 2, 1`: partners of one choice that lie on one axis are merged."""
    partners: dict[tuple[str, str, str], list[str]] = {}
    for axis, name, other, choice in rows:
        partners.setdefault((axis, name, other), []).append(choice)
    return tuple(f"{axis} {name} with {other} {', '.join(of)}" for (axis, name, other), of in partners.items())
