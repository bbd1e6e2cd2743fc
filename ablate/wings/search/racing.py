"""Races: which settings lead, given noisy scores, and which of them gets another seed next.

Settings are selected for a good first score, so that score is partly luck. Repeats with other seeds show by how much
scores worsen on average (the optimism), and every first score is corrected by it. A repeat is worth its cost only while
leaders are closer than the noise between seeds: the others are behind for certain, and a new trial may be better.
docs/benchmarks/search.md compares rules.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONTENDERS = 5
"""Maximum number of settings that race for the best."""
CLOSE = 2.0
"""Largest distance of a contender from the leader, in standard deviations between seeds, if each has one seed. It
shrinks like the standard error of their difference."""
PRIOR = 4
"""Degrees of freedom of the noise that is known before the search."""
ENOUGH = 3
"""Number of seeds after which a member of a Pareto front needs no more."""

Seeds = Mapping[int, Sequence[tuple[float, ...]]]
"""Scores of settings, one per trial in order, keyed by the number of the first trial."""


@dataclass(frozen=True)
class Standings:
    """Settings with finite scores. Scores are negated if more is better."""

    numbers: tuple[int, ...]
    means: NDArray[np.float64]
    """(settings, objectives): mean scores, with first scores corrected for optimism."""
    counts: NDArray[np.int64]
    sd: float
    """Standard deviation of the first objective between seeds, pooled over settings; infinite if unknown."""

    @property
    def values(self) -> dict[int, tuple[float, ...]]:
        return {number: tuple(map(float, mean)) for number, mean in zip(self.numbers, self.means, strict=True)}

    def order(self) -> list[int]:
        """Numbers of the settings' first trials, best first."""
        return best_first(self.values, ["minimize"] * self.means.shape[1])

    def front(self) -> list[int]:
        """The best setting; with several objectives, the Pareto front."""
        found = fronts(self.values, ["minimize"] * self.means.shape[1]) if self.numbers else [[]]
        return found[0]

    def contenders(self) -> list[int]:
        """Settings that may still be the best, leader first; with several objectives, the Pareto front."""
        order = self.order()
        if self.means.shape[1] > 1:
            front = set(self.front())
            return [number for number in order if number in front]
        return [number for number in order[:CONTENDERS] if self._is_close(number, order[0])]

    def _is_close(self, number: int, leader: int) -> bool:
        one, best = self.numbers.index(number), self.numbers.index(leader)
        error = self.sd * math.sqrt((1 / self.counts[one] + 1 / self.counts[best]) / 2)
        return bool(self.means[one, 0] - self.means[best, 0] <= CLOSE * error)

    def next(self, busy: Collection[int] = ()) -> int | None:
        """Setting that gets another seed: the contender with the fewest seeds, the better of equals. None if no other
        is close to the best, or each member of the front has `ENOUGH`. busy: settings whose next seed is running."""
        found = self.contenders()
        if self.means.shape[1] > 1:
            found = [number for number in found if self._count(number) < ENOUGH]
        elif len(found) < 2:
            return None
        return min((number for number in found if number not in busy), key=self._count, default=None)

    def _count(self, number: int) -> int:
        return int(self.counts[self.numbers.index(number)])


def standings(scores: Seeds, directions: Sequence[str], noise: float | None = None) -> Standings:
    """Standings of settings. Settings with a diverged seed are left out.

    noise: standard deviation of the first objective between seeds, as known before the search; None if unknown.
    """
    signs = np.array([1.0 if way == "minimize" else -1.0 for way in directions])
    known = {n: np.array(of, dtype=float) * signs for n, of in scores.items() if np.isfinite(of).all()}
    repeated = [of for of in known.values() if len(of) > 1]
    # (repeated settings, objectives): by how much the mean of the repeats is worse than the first score
    falls = np.array([of[1:].mean(axis=0) - of[0] for of in repeated]).reshape(-1, len(signs))
    optimism = np.maximum(falls.mean(axis=0), 0.0) if repeated else np.zeros(len(signs))
    corrected = [np.vstack([of[:1] + optimism, of[1:]]) for of in known.values()]
    prior = 0 if noise is None else PRIOR
    freedom = sum(len(of) - 1 for of in repeated) + prior
    squares = sum((float(((of[:, 0] - of[:, 0].mean()) ** 2).sum()) for of in repeated), prior * (noise or 0.0) ** 2)
    return Standings(
        numbers=tuple(known),
        means=np.array([of.mean(axis=0) for of in corrected]).reshape(-1, len(signs)),
        counts=np.array([len(of) for of in corrected], dtype=int),
        sd=math.sqrt(squares / freedom) if freedom else math.inf,
    )


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
