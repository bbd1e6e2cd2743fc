"""Ratios of costs, judged together, and points that another point surely dominates. Pure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import scipy  # loads its submodules on first use

from reports.judge.statistics.estimates import Estimate, estimate
from reports.judge.verdicts import ALPHA

FURTHEST = 500.0
"""Bound on |ln ratio|; larger values are clipped, so that exp does not overflow."""
Key = TypeVar("Key", bound=Hashable)


def judge(logs: Mapping[Key, Sequence[float]], alpha: float = ALPHA) -> dict[Key, Estimate]:
    """The ratio of each cost from its ln ratios (at least two), corrected for all costs given."""
    p_values = {key: _p(values) for key, values in logs.items()}
    levels: dict[Key, float] = {}
    # Holm, step by step: α/m for the smallest p, then α/(m − 1), …
    level, failed = alpha, False
    for place, key in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        level = level if failed else alpha / (len(logs) - place)
        failed = failed or p_values[key] >= level
        levels[key] = level
    return {key: _ratio(values, levels[key]) for key, values in logs.items()}


def _p(values: Sequence[float]) -> float:
    """Two-sided p of no difference. Identical values (bytes of an allocator, a shared measurement) count as exact."""
    if max(values) == min(values):
        return 1.0 if values[0] == 0 else 0.0
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    return 2 * float(scipy.special.stdtr(len(values) - 1, -abs(np.mean(values)) / error))


def _ratio(logs: Sequence[float], level: float) -> Estimate:
    found = estimate(logs, level)
    if found is None or found.low is None or found.high is None:
        raise ValueError("a single process does not show how processes differ")
    reached = np.clip([found.mean, found.low, found.high, *logs], -FURTHEST, FURTHEST)  # wild processes exceed it
    mean, low, high, *ratios = np.exp(reached).tolist()
    return Estimate(mean, low, high, found.sd, tuple(ratios))


# Points surely dominated by another point, with uncertainty in both coordinates. Pure.
#
# A point is surely beaten if another point is surely no worse in both coordinates and surely better in one: if the
# other's highest possible value is no higher than the point's lowest. With simultaneous intervals, all such statements
# hold together at the intervals' confidence, since they hold whenever all intervals do. The remaining points form no
# line: they are those that may lie on the Pareto front.

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
