"""Points surely dominated by another point, with uncertainty in both coordinates. Pure.

A point is surely beaten if another point is surely no worse in both coordinates and surely better in one: if the
other's highest possible value is no higher than the point's lowest. With simultaneous intervals, all such statements
hold together at the intervals' confidence, since they hold whenever all intervals do. The remaining points form no
line: they are those that may lie on the Pareto front.
"""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[float, float]
"""Lowest and highest possible value of a coordinate; less is better."""


def surely_dominated(points: Sequence[tuple[Span, Span] | None]) -> list[bool]:
    """Whether each point is surely beaten by another; an unknown point is not beaten and beats none."""
    known = [point for point in points if point is not None]
    return [point is not None and any(_beats(other, point) for other in known) for point in points]


def _beats(one: tuple[Span, Span], other: tuple[Span, Span]) -> bool:
    highest, lowest = [span[1] for span in one], [span[0] for span in other]
    pairs = list(zip(highest, lowest, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
