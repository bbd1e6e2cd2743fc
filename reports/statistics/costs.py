"""Ratios of costs, judged together. Pure.

A process in which arms took turns gives one ln ratio of two arms' times. Processes are independent repetitions, since
each builds and visits the arms in a random order of its own, so neither of two identical arms is favoured. A paired
t-test over processes therefore holds its level, and includes whatever differs between processes. Since processes are
few, the variance of a ratio is drawn towards those of the other ratios of its kind (`ablate.noise.moderated`). Peak
memory is measured once per run; its repetitions are the runs of the seeds.

The tests of all arms and all kinds of cost are corrected together (Holm). Ordered by p, test i of m is made at α / (m −
i + 1); after the first test that fails, all later ones use its level. Each interval uses the level of its test, so it
excludes 1 exactly where Holm calls the cost different.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TypeVar

import numpy as np
from scipy import special  # scipy.stats takes seconds to load

from ablate.noise.moderated import NoiseModel
from reports.statistics.estimates import Estimate
from reports.verdicts import ALPHA

FURTHEST = 500.0
"""Bound on |ln ratio|; larger values are clipped, so that exp does not overflow."""
Key = TypeVar("Key", bound=Hashable)


def judge(
    logs: Mapping[Key, Sequence[float]], kind: Callable[[Key], Hashable], alpha: float = ALPHA
) -> dict[Key, Estimate]:
    """The ratio of each cost from its ln ratios (at least two), corrected for all costs given. kind: of a cost."""
    for key, values in logs.items():
        if len(values) < 2:
            raise ValueError(f"{key}: a single process does not show how processes differ")
    rows: dict[Hashable, dict[Key, dict[int, float]]] = {}
    for key, values in logs.items():
        rows.setdefault(kind(key), {})[key] = dict(enumerate(values))
    models = {name: NoiseModel(of) for name, of in rows.items()}
    found = {key: _Ratio(values, *models[kind(key)].moderated(key)) for key, values in logs.items()}
    p_values = {key: each.p for key, each in found.items()}
    levels: dict[Key, float] = {}
    # Holm, step by step: α/m for the smallest p, then α/(m − 1), …
    level, failed = alpha, False
    for place, key in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        level = level if failed else alpha / (len(logs) - place)
        failed = failed or p_values[key] >= level
        levels[key] = level
    return {key: each.estimate(levels[key]) for key, each in found.items()}


@dataclass(frozen=True)
class _Ratio:
    """ln ratios of a cost, with the moderated variance of one and its degrees of freedom. Identical ratios (bytes of an
    allocator, a shared measurement) count as exact."""

    logs: Sequence[float]
    variance: float
    freedom: float

    @property
    def _error(self) -> float:
        return math.sqrt(self.variance / len(self.logs)) if max(self.logs) > min(self.logs) else 0.0

    @property
    def p(self) -> float:
        """Two-sided p of no difference."""
        mean = fmean(self.logs)
        if not self._error:
            return 0.0 if mean else 1.0
        return 2 * float(special.stdtr(self.freedom, -abs(mean) / self._error))

    def estimate(self, level: float) -> Estimate:
        """The ratio with its interval at a level."""
        mean, half = fmean(self.logs), -self._error * float(special.stdtrit(self.freedom, level / 2))
        reached = np.clip([mean, mean - half, mean + half, *self.logs], -FURTHEST, FURTHEST)  # wild processes exceed it
        ratio, low, high, *ratios = np.exp(reached).tolist()
        return Estimate(ratio, low, high, stdev(self.logs), tuple(ratios))
