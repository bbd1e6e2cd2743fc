"""A value with the open interval of what the data leave possible."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """`low` < truth < `high`, at the confidence that whoever made it states. Ends may be infinite."""

    value: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether `value` is ruled out; an end of the interval is."""
        return not self.low < value < self.high

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2
