"""A value with the open interval of values that the data allow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import scipy  # loads its submodules on first use
from pydantic import JsonValue

from reports.judge.noise.power import ALPHA, POWER, detectable


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
