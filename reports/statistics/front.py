"""Which of several points another one surely beats, where both coordinates are uncertain. Pure.

A point is beaten where some other is surely no worse in both coordinates and surely better in one: where the highest
that the other may be is no higher than the lowest that it may be. For simultaneous intervals all such statements hold
together with the intervals' confidence, since they hold whenever all intervals do. What is left is not a line, but the
points that may lie on the Pareto front.
"""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[float, float]
"""The lowest and the highest that a coordinate may be; less is better."""


def surely_beaten(points: Sequence[tuple[Span, Span] | None]) -> list[bool]:
    """Whether each point is surely beaten by another; an unknown point is not beaten and beats none."""
    known = [point for point in points if point is not None]
    return [point is not None and any(_beats(other, point) for other in known) for point in points]


def _beats(one: tuple[Span, Span], other: tuple[Span, Span]) -> bool:
    highest, lowest = [span[1] for span in one], [span[0] for span in other]
    pairs = list(zip(highest, lowest, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
