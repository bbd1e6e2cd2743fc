"""Axes relative to a baseline: ratios of costs, and differences of losses and scores."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import ClassVar

from reports.judge.statistics.costs import Span
from reports.judge.statistics.estimates import Estimate
from reports.page.figures.base import SwitchOption, short
from reports.page.figures.drawing import Attributes, label
from reports.page.wording import words
from reports.page.wording.tables import Better

ARROWS = {("x", "low"): "←", ("x", "high"): "→", ("y", "low"): "↓", ("y", "high"): "↑"}
RELATIVE, BROKEN = ", relative", "<br>relative"
"""Where the name of an axis is broken into two lines, since phones are narrow."""
FACTORS = 1.5
"""Axes with a ratio this far from 1 have factors as ticks; others have percentages."""
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
MOST_TICKS = 6
FARTHEST = 5
"""Multiple of the median distance of intervals from the baseline beyond which an interval has no bar."""


@dataclass(frozen=True)
class Against(ABC):
    """An axis of values relative to a baseline, one value per point, None if unknown. It has room for every interval
    but those that are `FARTHEST` times as wide as most, or unbounded, which are not drawn."""

    same: ClassVar[float]
    """Value of the baseline."""

    name: str
    values: tuple[Estimate | None, ...]
    better: Better = "low"

    @abstractmethod
    def place(self, value: float) -> float:
        """Position on the axis, in the axis's own unit."""

    @abstractmethod
    def text(self, value: Estimate | None) -> str:
        """The value with its interval."""

    @abstractmethod
    def ticks(self) -> Attributes:
        """Attributes of the axis apart from its title and range."""

    @property
    def known(self) -> list[Estimate]:
        return [value for value in self.values if value is not None]

    @property
    def range(self) -> tuple[float, float]:
        """Limits of the axis: the baseline, all points and their intervals, with a margin for their names."""
        ends = [self.place(end) for value in self.known for end in (value.mean, *self._drawn(value))]
        low, high = min(self.place(self.same), *ends), max(self.place(self.same), *ends)
        margin = 0.15 * (high - low) or self.least
        return low - margin, high + margin

    @property
    def lacks_bars(self) -> bool:
        """Whether some interval is not drawn."""
        return any(value.low is not None and value.low not in self._drawn(value) for value in self.known)

    @cached_property
    def _farthest(self) -> float:
        """Distance from the baseline beyond which an interval is not drawn."""
        far = [max(abs(self.place(end) - self.place(self.same)) for end in _ends(value)) for value in self.known]
        return FARTHEST * median([each for each in far if 0 < each < math.inf] or [math.inf])

    def _drawn(self, value: Estimate) -> tuple[float, ...]:
        """Both ends of the interval that is drawn; none if none is."""
        ends = _ends(value)
        is_near = all(abs(self.place(end) - self.place(self.same)) <= self._farthest for end in ends)
        return ends if is_near and all(map(math.isfinite, ends)) else ()

    def _bar(self, value: Estimate | None, side: int) -> float:
        """Length of the bar below the mean, or with side 1 above it."""
        ends = () if value is None else self._drawn(value)
        return short(abs(ends[side] - value.mean)) if value is not None and ends else 0.0

    @property
    @abstractmethod
    def least(self) -> float:
        """Half of the axis's length if all points agree."""

    def share(self, value: Estimate | None) -> float:
        """Position of a value as a share of the axis's length; 0 for a missing value."""
        first, last = self.range
        return 0.0 if value is None else (self.place(value.mean) - first) / (last - first)

    def spans(self) -> list[Span | None]:
        """Intervals of all points, with lower being better; unbounded for a point without an interval, None for a
        missing one."""
        return [None if value is None else self._span(value) for value in self.values]

    def _span(self, value: Estimate) -> Span:
        low, high = (-math.inf, math.inf) if value.low is None or value.high is None else (value.low, value.high)
        return (low, high) if self.better == "low" else (-high, -low)

    def option(self, letter: str) -> SwitchOption:
        """Traces and layout to change when this axis is selected."""
        title = f"{label(self.name, 90).replace(RELATIVE, BROKEN)} · better {ARROWS[letter, self.better]}"
        layout = {"title.text": title, "range": [short(end) for end in self.range], **self.ticks()}
        return SwitchOption(
            self.name.partition(RELATIVE)[0],
            {
                letter: [[None if value is None else short(value.mean)] for value in self.values],
                f"error_{letter}.array": [[self._bar(value, 1)] for value in self.values],
                f"error_{letter}.arrayminus": [[self._bar(value, 0)] for value in self.values],
            },
            {f"{letter}axis.{name}": value for name, value in layout.items()},
        )


@dataclass(frozen=True)
class LossDifferences(Against):
    same = 0.0

    def place(self, value: float) -> float:
        return value

    def text(self, value: Estimate | None) -> str:
        return words.NONE if value is None else words.interval(value).removesuffix(" nats")

    def ticks(self) -> Attributes:
        return {"type": "linear", "tickvals": None, "ticktext": None}

    @property
    def least(self) -> float:
        return 0.01


@dataclass(frozen=True)
class Ratios(Against):
    """A logarithmic axis: half is as far from equal as twice."""

    same = 1.0

    def place(self, value: float) -> float:
        return math.log10(value) if value > 0 else -math.inf

    def text(self, value: Estimate | None) -> str:
        """`0.97× (0.95× to 0.99×)`."""
        if value is None:
            return words.NONE
        said = [f"{each:.3g}×" for each in (value.mean, value.low, value.high) if each is not None]
        is_exact = len(said) == 1 or value.low == value.high
        return said[0] if is_exact else f"{said[0]} ({said[1]} to {said[2]})"

    def ticks(self) -> Attributes:
        low, high = self.range
        far = max(abs(self.place(value.mean)) for value in self.known) > math.log10(FACTORS)
        far |= 10**high - 10**low > MOST_TICKS * STEPS[-1]
        if far:  # powers of two, `1/2×`; thinned if there are many
            first, last = math.ceil(low / math.log10(2)), math.floor(high / math.log10(2))
            every = max(1, math.ceil((last - first + 1) / MOST_TICKS))
            shown = [power for power in range(first, last + 1) if power % every == 0]
            found = {2.0**power: f"1/{2**-power}×" if power < 0 else f"{2**power}×" for power in shown}
        else:  # `−5 %`, `same`, `+5 %`
            least, most = 10**low - 1, 10**high - 1
            step = next((step for step in STEPS if (most - least) / step <= MOST_TICKS), STEPS[-1])
            changes = [place * step for place in range(math.ceil(least / step), math.floor(most / step) + 1)]
            found = {
                1 + change: f"{'+' if change > 0 else '−'}{abs(100 * change):.3g} %" if change else "same"
                for change in changes
                if change > -1
            }
        return {"type": "log", "tickvals": list(found), "ticktext": list(found.values())}

    @property
    def least(self) -> float:
        return 0.01


def _ends(value: Estimate) -> tuple[float, float]:
    """The interval; the mean itself without one."""
    return (value.mean, value.mean) if value.low is None or value.high is None else (value.low, value.high)


def points(x: Against, y: Against) -> Sequence[tuple[Span, Span] | None]:
    """Intervals of both coordinates of each point; None for a missing point."""
    pairs = zip(x.spans(), y.spans(), strict=True)
    return [None if a is None or b is None else (a, b) for a, b in pairs]
