"""Standings of a search's settings: by score, or in Pareto fronts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Values = Mapping[int, Sequence[float]]


def best_first(values: Values, directions: Sequence[str]) -> list[int]:
    """Trial numbers, best first: by Pareto front, within it by crowding distance, then the earlier."""
    order: list[int] = []
    for front in fronts(values, directions):
        spread = dict(zip(front, _crowding(np.array([values[number] for number in front])), strict=True))
        order += sorted(front, key=lambda number: (-spread[number], number))
    return order


def fronts(values: Values, directions: Sequence[str]) -> list[list[int]]:
    """Trial numbers in Pareto fronts: the first is not dominated, each next only by members of earlier fronts."""
    if not values:
        return []
    signs = [1 if direction == "minimize" else -1 for direction in directions]
    numbers, points = np.array(list(values)), np.array(list(values.values()), dtype=np.float64) * signs
    ranks = np.unique(points, return_inverse=True)[1].ravel() if len(signs) == 1 else _ranks(points)
    order = np.argsort(ranks, kind="stable")
    starts = np.flatnonzero(np.diff(ranks[order]))
    return [front.tolist() for front in np.split(numbers[order], starts + 1)]


def _ranks(points: NDArray[np.float64]) -> NDArray[np.int64]:
    """(N,): index of the front of each point (N, M); less is better. N² comparisons per objective, and N² bytes."""
    # no_worse[i, j]: point i is no worse than point j in any objective. Fronts are peeled off one by one.
    no_worse = np.ones((len(points), len(points)), dtype=np.bool_)
    for column in points.T:
        no_worse &= column[:, None] <= column[None, :]
    dominates = no_worse & ~no_worse.T
    dominated_by = dominates.sum(axis=0)
    ranks, rank = np.empty(len(points), dtype=np.int64), 0
    while len(front := np.flatnonzero(dominated_by == 0)):
        ranks[front] = rank
        dominated_by -= dominates[front].sum(axis=0)
        dominated_by[front] = -1
        rank += 1
    return ranks


def _crowding(values: NDArray[np.float64]) -> list[float]:
    """Crowding distance of each point (N, M): normalised gap between its neighbours, summed over objectives; infinite
    at the ends."""
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
