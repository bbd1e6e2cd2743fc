"""A value with the open interval of what the data leave possible."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import JsonValue


@dataclass(frozen=True)
class Interval:
    """`low` < truth < `high`, at the confidence that whoever made it states. Ends may be infinite."""

    value: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether `value` is ruled out; an end of the interval is."""
        return not self.low < value < self.high

    def moved(self, by: float) -> Interval:
        return Interval(self.value + by, self.low + by, self.high + by)

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def ends_as_json(low: float | None, high: float | None) -> list[JsonValue] | None:
    """The ends of an interval, null for an infinite one; None where there is no interval."""
    return None if low is None or high is None else [end if math.isfinite(end) else None for end in (low, high)]
