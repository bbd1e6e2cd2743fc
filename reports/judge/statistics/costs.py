"""Ratios of costs, judged together. Pure.

A process in which arms took turns gives one ln ratio of two arms' times. Processes are independent repetitions, since
each builds and visits the arms in a random order of its own, so neither of two identical arms is favoured. A paired
t-test over processes therefore holds its level, and includes whatever differs between processes. Ratios to one arm
share its noise, so their variances are not drawn towards each other as those of arms are: 12 % of studies with a noisy
baseline would have a false difference at three processes. Peak memory is measured once per run; its repetitions are the
runs of the seeds.

The tests of all arms and all kinds of cost are corrected together (Holm). Ordered by p, test i of m is made at α / (m −
i + 1); after the first test that fails, all later ones use its level. Each interval uses the level of its test, so it
excludes 1 exactly where Holm calls the cost different.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from scipy import special  # scipy.stats takes seconds to load

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
    return 2 * float(special.stdtr(len(values) - 1, -abs(np.mean(values)) / error))


def _ratio(logs: Sequence[float], level: float) -> Estimate:
    found = estimate(logs, level)
    if found is None or found.low is None or found.high is None:
        raise ValueError("a single process does not show how processes differ")
    reached = np.clip([found.mean, found.low, found.high, *logs], -FURTHEST, FURTHEST)  # wild processes exceed it
    mean, low, high, *ratios = np.exp(reached).tolist()
    return Estimate(mean, low, high, found.sd, tuple(ratios))
