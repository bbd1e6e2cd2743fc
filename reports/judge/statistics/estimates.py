"""Means over seeds, paired differences, their intervals and tests, and ratios of costs. Pure arithmetic.

All intervals of means are two-sided Student t-intervals over seeds, at 95 % unless stated otherwise. The last axis is
always the seeds. Ratios of costs are judged together; a point may surely dominate another.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import scipy  # loads its submodules on first use
from numpy.typing import ArrayLike, NDArray
from pydantic import JsonValue

from reports.judge.noise.power import POWER, detectable
from reports.judge.verdicts import ALPHA, Verdict, verdict_of


@dataclass(frozen=True)
class Interval:
    """`low` < truth < `high`, at a confidence set by the caller. Ends may be infinite."""

    value: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether `value` is outside the open interval; its ends are outside."""
        return not self.low < value < self.high

    def moved(self, by: float) -> Interval:
        return Interval(self.value + by, self.low + by, self.high + by)

    def times(self, value: float, low: float | None = None, high: float | None = None) -> Interval:
        """Product of two positive factors, whose intervals add in quadrature as logarithms; an exact one adds
        nothing."""
        if not self.low or math.isinf(self.high):
            return Interval(value * self.value, value * self.low, value * self.high)
        down = math.hypot(math.log(self.value / self.low), math.log(value / (low or value)))
        up = math.hypot(math.log(self.high / self.value), math.log((high or value) / value))
        return Interval(value * self.value, value * self.value * math.exp(-down), value * self.value * math.exp(up))

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def ends_as_json(low: float | None, high: float | None) -> list[JsonValue] | None:
    """The ends of an interval, null for an infinite one; None where there is no interval."""
    return None if low is None or high is None else [end if math.isfinite(end) else None for end in (low, high)]


# The smallest detectable difference, and its uncertainty. Pure.
#
#     detectable = c(ν, α, power) · s        s²·ν/σ² ~ χ²(ν)
#
# c is that of `noise.power.detectable`. The sd of three paired differences is between 0.16 and 1.92 times the true
# one in 95 % of studies. The detectable difference inherits that: its true value is between 0.52 and 6.3 times the
# estimate. Assumes normal differences.


def sd_interval(sd: float, n: float, alpha: float = ALPHA) -> Interval:
    """Interval of the true standard deviation, from the sd of n values: s · √((n − 1) / χ²(n − 1)), equal tails."""
    low, high = ((n - 1) / scipy.special.chdtri(n - 1, tail) for tail in (alpha / 2, 1 - alpha / 2))
    return Interval(sd, sd * math.sqrt(low), sd * math.sqrt(high))


def detectable_effect(error: float, freedom: float, alpha: float = ALPHA, power: float = POWER) -> Interval:
    """Effect that a t-test at `alpha` detects with probability `power`, with its 95 % interval. error: the estimate's
    standard error."""
    per_error = detectable(1.0, freedom, alpha, power)
    spread = sd_interval(error, freedom + 1)
    return Interval(per_error * spread.value, per_error * spread.low, per_error * spread.high)


Floats = NDArray[np.float64]
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds. Interval and standard deviation are None for fewer than two seeds."""

    mean: float
    low: float | None
    high: float | None
    sd: float | None
    values: tuple[float, ...]

    @property
    def half_width(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def scaled(self, factor: float) -> Estimate:
        """A ratio times an exact positive number. `sd` is that of logarithms and stays."""
        low, high = (None if end is None else factor * end for end in (self.low, self.high))
        return Estimate(factor * self.mean, low, high, self.sd, tuple(factor * value for value in self.values))

    def negative(self) -> Estimate:
        """The same difference with the opposite sign."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return Estimate(-self.mean, low, high, self.sd, tuple(-value for value in self.values))

    def inverse(self) -> Estimate:
        """The reciprocal ratio. `sd` is that of logarithms and stays."""
        low, high = (None if end is None else 1 / end for end in (self.high, self.low))
        return Estimate(1 / self.mean, low, high, self.sd, tuple(1 / value for value in self.values))

    def verdict(self, alike: float) -> Verdict:
        """The verdict on an estimate of which less is better, by its interval. alike: the value of no difference."""
        return verdict_of(self.mean - alike, 0.0 if self.excludes(alike) else 1.0)

    def excludes(self, value: float) -> bool:
        """Whether the estimate differs from `value`, by an interval that excludes it or ends there."""
        return (
            self.low is not None and self.high is not None and self.mean != value and not self.low < value < self.high
        )


def single(value: float) -> Estimate:
    """A value without an interval."""
    return Estimate(value, None, None, None, (value,))


def exact(ratio: float) -> Estimate:
    """A ratio that needs no measurement."""
    return Estimate(ratio, ratio, ratio, None, (ratio,))


NO_DIFFERENCE = Estimate(0.0, 0.0, 0.0, None, ())
SAME_RATIO = Estimate(1.0, 1.0, 1.0, None, ())
"""Estimates of the baseline against itself."""


def mean_interval(values: ArrayLike, alpha: float = ALPHA) -> tuple[Floats, Floats, Floats]:
    """Mean and interval over the last axis (..., n): mean ± t(1 − α/2, n−1) · sd / √n, n ≥ 2."""
    array = np.asarray(values, dtype=np.float64)
    n = array.shape[-1]
    mean = array.mean(axis=-1)
    half = scipy.special.stdtrit(n - 1, 1 - alpha / 2) * array.std(axis=-1, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half


def estimate(values: Sequence[float], alpha: float = ALPHA) -> Estimate | None:
    """Mean of one value per seed, with its interval; None without values."""
    if not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    if len(values) == 1:
        return single(float(array[0]))
    mean, low, high = (float(number) for number in mean_interval(array, alpha))
    return Estimate(mean, low, high, float(array.std(ddof=1)), tuple(array.tolist()))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down correction over the comparisons of one study, in the order given.

    p₍₁₎ ≤ … ≤ p₍ₘ₎ become max over j ≤ i of (m − j + 1)·p₍ⱼ₎, at most 1. Holm 1979, Scand. J. Statist. 6:65.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    steps = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    corrected = np.empty_like(p)
    corrected[order] = steps
    return tuple(corrected.tolist())


def holm_by_name(p_values: Mapping[Name, float | None]) -> dict[Name, float | None]:
    """`holm` by name. An arm without a p-value keeps None, yet counts as a test: it may get one later."""
    corrected = holm([1.0 if p is None else p for p in p_values.values()])
    return {name: None if p_values[name] is None else p for name, p in zip(p_values, corrected, strict=True)}


def combined_stderr(stderrs: Sequence[float | None], values: Sequence[float]) -> float | None:
    """Standard error of a score averaged over n seeds that answered the same items.

    √(mean of the squared item errors + sd² / n): the seeds share the items, so averaging shrinks the seeds' own scatter
    but not the item error. None if a run gave no error.
    """
    squares = _squared_errors(stderrs, values)
    return None if squares is None else math.sqrt(sum(squares))


def score_half_width(stderrs: Sequence[float | None], values: Sequence[float], alpha: float = ALPHA) -> float | None:
    """Half width of the interval of a score averaged over n seeds: √(z² · mean of the squared item errors + t²(n − 1) ·
    sd² / n).

    Each source of noise has its own quantile (Zou and Donner 2008, as in `statistics.crossed`), since items are
    many and seeds few. A single seed has an interval over items alone. Conservative: the part of an item's error that
    differs between seeds counts in both terms, though averaging shrinks it. None if a run gave no error.
    """
    squares = _squared_errors(stderrs, values)
    if squares is None:
        return None
    z, t = -float(scipy.special.ndtri(alpha / 2)), -float(scipy.special.stdtrit(max(1, len(values) - 1), alpha / 2))
    return math.sqrt(z**2 * squares[0] + t**2 * squares[1])


def _squared_errors(stderrs: Sequence[float | None], values: Sequence[float]) -> tuple[float, float] | None:
    """Squared standard errors of the mean over seeds: (over items, over seeds). None if a run gave no error."""
    known = [error for error in stderrs if error is not None]
    if not known or len(known) < len(stderrs):
        return None
    seeds = float(np.var(values, ddof=1)) / len(values) if len(values) > 1 else 0.0
    return float(np.mean(np.square(known))), seeds


# Seeds that fail: what a mean over seeds hides, and how little a few seeds tell of failure rates. Pure.
#
#     diverged   loss ≥ ln V, or not finite: worse than guessing all tokens alike
#     stalled    loss > unigram loss − 0.1: it learned how frequent tokens are, and little else
#
# A failed run is an unknown, bad loss (`noise.moderated`): an arm that has one is never better, none is worse than
# a baseline that has one, and neither is the same as the other. Arms without a failed seed are judged by their losses,
# and the bound on their failure rate belongs beside the verdict.
#
# No rule can do more with few seeds. In 0.9^n of studies, an arm that fails in 10 % of seeds looks exactly like one
# that never fails. A rule that calls the latter better with power w calls the former better in w·0.9^n of studies, 73
# % at three seeds, even where its failures cost all that it gains. To keep that at 5 % takes 29 runs without a
# failure.


def failure_rate_bound(runs: int, alpha: float = ALPHA) -> float:
    """Upper bound on the failure rate of an arm none of whose runs failed, one-sided at 1 − α (Clopper and Pearson
    1934): 1 − α^(1/n)."""
    return 1 - float(alpha ** (1 / runs))


@dataclass(frozen=True)
class Failures:
    """Numbers of failed seeds of an arm and of its baseline."""

    arm: int = 0
    baseline: int = 0

    @property
    def any(self) -> bool:
        return bool(self.arm or self.baseline)


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
