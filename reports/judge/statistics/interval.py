"""A value with the open interval of values that the data allow."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import JsonValue


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
