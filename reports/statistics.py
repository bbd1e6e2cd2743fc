"""Means over seeds, paired differences and what a study could have seen. Pure arithmetic.

All intervals are two-sided 95 % Student t-intervals over seeds. The last axis is always the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats
from statsmodels.stats.multitest import multipletests

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
POWER = 0.8

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds; interval and standard deviation are None with fewer than two of them."""

    mean: float
    low: float | None
    high: float | None
    sd: float | None
    values: tuple[float, ...]

    @property
    def half_width(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def excludes(self, value: float) -> bool:
        """Whether there is an interval and `value` lies outside it."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high


def mean_interval(values: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Mean and interval over the last axis (..., n): mean ± t(0.975, n−1) · sd / √n, n ≥ 2."""
    array = np.asarray(values, dtype=np.float64)
    n = array.shape[-1]
    mean = array.mean(axis=-1)
    half = stats.t.ppf(1 - ALPHA / 2, n - 1) * array.std(axis=-1, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half


def paired_p(differences: ArrayLike) -> Floats:
    """Two-sided p of a paired t-test over the last axis (..., n), n ≥ 2; NaN where all equal."""
    array = np.asarray(differences, dtype=np.float64)
    n = array.shape[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = array.mean(axis=-1) / (array.std(axis=-1, ddof=1) / math.sqrt(n))
    p = np.asarray(2 * stats.t.sf(np.abs(t), n - 1), dtype=np.float64)
    return np.where(np.ptp(array, axis=-1) == 0, np.nan, p)


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean of one value per seed with its interval; None without values."""
    if not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    if len(values) == 1:
        return Estimate(float(array[0]), None, None, None, (float(array[0]),))
    mean, low, high = (float(number) for number in mean_interval(array))
    return Estimate(mean, low, high, float(array.std(ddof=1)), tuple(array.tolist()))


def geometric(ratios: Sequence[float]) -> Estimate | None:
    """The geometric mean of positive ratios; its interval is that of the logarithms."""
    logs = estimate([math.log(ratio) for ratio in ratios])
    if logs is None:
        return None
    low = None if logs.low is None else math.exp(logs.low)
    high = None if logs.high is None else math.exp(logs.high)
    return Estimate(math.exp(logs.mean), low, high, logs.sd, tuple(ratios))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down correction over the comparisons of one study, in the order given."""
    if not p_values:
        return ()
    return tuple(float(p) for p in multipletests(p_values, alpha=ALPHA, method="holm")[1])


def smallest_detectable(sd: float, n: int, comparisons: int = 1, power: float = POWER) -> float:
    """The true paired difference that a study of `n` seeds finds with probability `power`.

    `sd` is that of the paired differences, and the level α / comparisons: what Holm's correction
    asks of the smallest p. Solves power = P(T > t_crit) for T noncentral t with n − 1 degrees of
    freedom and noncentrality δ·√n / sd; finding the wrong sign does not count as finding it.
    """
    critical = float(stats.t.isf(ALPHA / comparisons / 2, n - 1))

    def missing(noncentrality: float) -> float:
        return float(stats.nct.sf(critical, n - 1, noncentrality)) - power

    high = critical
    while missing(high) < 0:
        high *= 2
    return float(optimize.brentq(missing, 0.0, high)) * sd / math.sqrt(n)


def combined_stderr(stderrs: Sequence[float | None], values: Sequence[float]) -> float | None:
    """Standard error of a score averaged over n seeds that answered the same items.

    √(mean of the squared item errors + sd² / n): the seeds share the items, so averaging does not
    shrink the item error; it does shrink the seeds' own scatter. None where a run gave no error.
    """
    known = [error for error in stderrs if error is not None]
    if not known or len(known) < len(stderrs):
        return None
    items = float(np.mean(np.square(known)))
    seeds = float(np.var(values, ddof=1)) / len(values) if len(values) > 1 else 0.0
    return math.sqrt(items + seeds)
