"""Intervals over the arms of a study that agree with Holm's verdicts. Pure.

    CI_i(α/m), cut at zero where Holm calls arm i different: then of one sign, else around zero

Holm rejects every p ≤ α/m, so an interval at α/m that excludes zero always belongs to a rejected arm. The cut serves
the arms that only a later step rejects. Three statements hold, for m arms of any dependence:

- At most 5 % of studies have an interval that wrongly excludes zero (Holm's guarantee).
- At most 5 % of studies have a CI_i(α/m), before the cut, that misses its truth (Bonferroni's).
- Each interval contains the uncorrected CI_i(α), since Holm rejects only p ≤ α. So each covers its own truth in 95 %.

Intervals that are compatible with Holm and hold jointly give only the sign of a rejected arm, unless all arms are
rejected (Strassburger and Bretz 2008, doi:10.1002/sim.3338; Guilbaud 2008, doi:10.1002/bimj.200710449). Here a rejected
arm keeps its far end, and the joint coverage after the cut is at least 1 − α·(2 − 1/m).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import scipy  # loads its submodules on first use

from reports.judge.noise.difference import Difference
from reports.judge.statistics.estimates import Interval, holm
from reports.judge.verdicts import ALPHA

Correction = Literal["holm", "benjamini_hochberg"]


@dataclass(frozen=True)
class Evidence:
    """An arm's estimate, the p of its test, and the interval of that test at any level.

    p is below `level` where `interval(level)`, two-sided, excludes zero on the side of the value.
    """

    value: float
    p: float
    interval: Callable[[float], tuple[float, float]]

    @classmethod
    def of(cls, gap: Difference | None, looks: float = 1.0) -> Evidence:
        """Evidence of a difference at one of several looks, for which its p is multiplied by `looks`."""
        if gap is None:
            return cls.of_p(None)
        return cls(gap.value, min(1.0, looks * gap.p()), lambda level: gap.interval(level / looks))

    @classmethod
    def of_p(cls, p: float | None) -> Evidence:
        """Evidence of a test known only by its p-value, or by none (p = 1): it still counts in the correction."""
        return cls(0.0, 1.0 if p is None else p, lambda _level: (-math.inf, math.inf))


def together(
    tests: Sequence[Evidence], correction: Correction = "holm", alpha: float = ALPHA
) -> tuple[tuple[float, ...], tuple[Interval, ...]]:
    """Corrected p-values, and intervals that lie on one side of zero where the p-value is below `alpha`."""
    p_values = [test.p for test in tests]
    if correction == "holm":
        return holm(p_values), difference_intervals(tests, alpha)
    corrected = tuple(scipy.stats.false_discovery_control(p_values).tolist())
    # Benjamini and Hochberg reject all p ≤ R·α/m, and no other.
    found = sum(p < alpha for p in corrected)
    level = max(found, 1) * alpha / len(tests)
    return corrected, tuple(Interval(test.value, *test.interval(level)) for test in tests)


def difference_intervals(tests: Sequence[Evidence], alpha: float = ALPHA) -> tuple[Interval, ...]:
    """One interval per arm. It lies on one side of zero exactly where the corrected p is below `alpha`, and ends at
    zero if only a later step of Holm's rejects the arm."""
    found = []
    for test, p in zip(tests, holm([test.p for test in tests]), strict=True):
        low, high = test.interval(alpha / len(tests))
        if p < alpha:
            low, high = (max(low, 0.0), high) if test.value > 0 else (low, min(high, 0.0))
        elif low > 0 or high < 0:  # the p-value was computed with another noise estimate
            low, high = min(low, 0.0), max(high, 0.0)
        found.append(Interval(test.value, low, high))
    return tuple(found)
