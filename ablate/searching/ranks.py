"""Which trials are best under several objectives: by non-dominated rank, and within a rank by crowding distance.

Deb et al. 2002, NSGA-II. With one objective this is the order of its values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Values = Mapping[int, Sequence[float]]


def best_first(values: Values, directions: Sequence[str]) -> list[int]:
    """Trial numbers, the best first; of equals the earlier."""
    order: list[int] = []
    for front in fronts(values, directions):
        spread = dict(zip(front, _crowding(np.array([values[number] for number in front])), strict=True))
        order += sorted(front, key=lambda number: (-spread[number], number))
    return order


def fronts(values: Values, directions: Sequence[str]) -> list[list[int]]:
    """Trial numbers in fronts, the first not dominated by any other, each next only by those before."""
    signs = [1 if direction == "minimize" else -1 for direction in directions]
    left = {number: tuple(s * v for s, v in zip(signs, of, strict=True)) for number, of in values.items()}
    found = []
    while left:
        front = [n for n, own in left.items() if not any(_dominates(other, own) for other in left.values())]
        found.append(front)
        left = {number: own for number, own in left.items() if number not in front}
    return found


def _dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and tuple(a) != tuple(b)


def _crowding(values: NDArray[np.float64]) -> list[float]:
    """Distance between the neighbours of a point, summed over objectives; infinite at the ends. values: (N, M)."""
    count, objectives = values.shape
    if objectives == 1 or count < 3:
        return [math.inf] * count
    distance = np.zeros(count)
    for column in np.where(np.isfinite(values), values, np.nan).T:
        order = np.argsort(column)
        span = np.nanmax(column) - np.nanmin(column) if np.isfinite(column).any() else 0.0
        distance[order[[0, -1]]] = np.inf
        if span > 0:
            gaps = (column[order[2:]] - column[order[:-2]]) / span
            distance[order[1:-1]] += np.nan_to_num(gaps)
    return [float(each) for each in distance]
