"""The compatibility matrix as a page: combinations that are refused, with reasons, and the whole table."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from reports.page.html.templating import render_plain


def render_matrix(axes: Mapping[str, list[str]], conflicts: Mapping[str, list[list[str]]]) -> str:
    """The page as HTML text. axes: choices by axis. conflicts: excluded pairs [axis, choice, axis, choice] by
    reason."""
    choices = [(axis, name) for axis, names in axes.items() for name in names]
    refused: dict[Any, int] = {}  # number of the reason by pair of (axis, choice), in both orders
    for number, excluded in enumerate(conflicts.values(), start=1):
        for axis, name, other, choice in excluded:
            refused[(axis, name), (other, choice)] = refused[(other, choice), (axis, name)] = number
    return render_plain(
        "matrix.html.j2",
        ("matrix.css",),
        own=Path(__file__).parent / "templates",
        axes=axes,
        choices=choices,
        pairs=sum(one[0] != other[0] for one, other in combinations(choices, 2)),
        reasons=[(text, _pairs(rows)) for text, rows in conflicts.items()],
        refused=refused,
    )


def _pairs(rows: list[list[str]]) -> tuple[str, ...]:
    """`mixer mla with mixer.kv_heads 2, 1`: partners of one choice that lie on one axis are merged."""
    partners: dict[tuple[str, str, str], list[str]] = {}
    for axis, name, other, choice in rows:
        partners.setdefault((axis, name, other), []).append(choice)
    return tuple(f"{axis} {name} with {other} {', '.join(of)}" for (axis, name, other), of in partners.items())
