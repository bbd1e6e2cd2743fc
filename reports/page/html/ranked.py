"""The result figure: one row per arm with its costs, the lowest loss first. HTML and SVG, without a script.

Positions across a row are percentages of its width, so that the figure fits any screen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from reports.judge.reading.outcomes import FAILED
from reports.judge.statistics.estimates import Estimate
from reports.judge.verdicts import Verdict
from reports.page.sections._against import VISIBLE, Cost
from reports.page.wording import words

SCREEN = 12
"""Number of rows that fit a screen; with more, arms on the front of loss and cost come first."""
FARTHEST = 5
"""The axis ends at this multiple of the rows' median extent, so that one distant arm leaves room for the others."""
LOPSIDED = 0.5
"""Share of an interval's half width between its middle and the mean from which the page says why."""
MARGIN = 4.0
"""Per cent of the width left free at either end."""
MOST_TICKS = 6
SHAPES = {
    "baseline": "M0,-7 L7,0 L0,7 L-7,0 Z",
    "lower": "M-7,0 L5,-7 L5,7 Z",
    "higher": "M7,0 L-5,-7 L-5,7 Z",
    "no difference": "M-6,-6 H6 V6 H-6 Z",
    "failed": "M-5,-5 L5,5 M5,-5 L-5,5",
}
"""SVG path of a mark, in pixels around its centre: differences point to their side. Undecided verdicts have `RING`."""
RING = "M-5.5,0 a5.5,5.5 0 1,0 11,0 a5.5,5.5 0 1,0 -11,0"


@dataclass(frozen=True)
class RankedCell:
    """A cost of an arm relative to the baseline's: text, interval, and a bar from the middle to `end` per cent."""

    text: str
    interval: str
    kind: str
    """`cheaper`, `dearer`, or `same` if measurements do not distinguish it."""
    end: float


@dataclass(frozen=True)
class RankedRow:
    """An arm or effect. `difference` is None if there is nothing to draw; `note` then gives the reason."""

    name: str
    label: str
    """The name in readable form."""
    gloss: str
    verdict: Verdict
    difference: Estimate | None
    said: str
    note: str
    costs: Mapping[str, Estimate]
    beaten: bool | None = None
    """Whether another row is surely better in loss and in the first cost; None if there are too few rows for this to
    matter."""
    aside: str = ""
    """A second reading of the number, such as its effective compute."""

    @property
    def kind(self) -> str:
        """CSS class of the verdict."""
        return "failed" if self.verdict in FAILED else self.verdict

    @property
    def shape(self) -> str:
        if self.kind not in ("better", "worse") or self.difference is None:
            return SHAPES.get(self.kind, RING)
        return SHAPES["lower" if self.difference.mean < 0 else "higher"]

    @property
    def reach(self) -> float:
        """Largest distance from zero that the row draws, ignoring unbounded ends."""
        value = self.difference
        if value is None:
            return 0.0
        ends = [end for end in (value.low, value.high) if end is not None and math.isfinite(end)]
        return max(abs(each) for each in (value.mean, *ends))


@dataclass(frozen=True)
class Axis:
    """Differences from `low` to `high`, placed in per cent of the width."""

    low: float
    high: float

    @classmethod
    def of(cls, rows: Sequence[RankedRow]) -> Axis:
        reaches = [row.reach for row in rows if row.reach]
        limit = min(max(reaches, default=0.01), FARTHEST * median(reaches or [0.01]))
        known = [row.difference for row in rows if row.difference is not None]
        ends = [end for each in known for end in (each.mean, each.low, each.high)]
        shown = [end for end in ends if end is not None and math.isfinite(end)]
        low, high = (min(limit, max(-limit, end)) for end in (min(shown, default=0.0), max(shown, default=0.0)))
        least = 0.1 * limit
        return cls(min(low, -least), max(high, least))

    def place(self, value: float) -> float:
        """Position in per cent of the width; values beyond the axis are placed at its end."""
        share = (min(self.high, max(self.low, value)) - self.low) / (self.high - self.low)
        return round(MARGIN + (100 - 2 * MARGIN) * share, 2)

    def cuts(self, value: float) -> bool:
        return not self.low <= value <= self.high

    def dots(self, values: Sequence[float]) -> list[float]:
        """Positions of the seeds that lie on the axis."""
        return [self.place(value) for value in values if not self.cuts(value)]

    def ticks(self, most: int = MOST_TICKS) -> tuple[tuple[float, str], ...]:
        """Positions and texts of round numbers."""
        rough = (self.high - self.low) / most
        power = 10 ** math.floor(math.log10(rough))
        step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough)
        digits = max(0, -math.floor(math.log10(step)))
        found = (place * step for place in range(math.ceil(self.low / step), math.floor(self.high / step) + 1))
        return tuple((self.place(value), words.signed(value, digits) if value else "0") for value in found)


@dataclass(frozen=True)
class Ranked:
    """The figure: rows in order, the axis of their differences, the costs that differ, and the study's margin."""

    rows: tuple[RankedRow, ...]
    columns: tuple[Cost, ...]
    alike: str
    base: str
    unit: str
    is_of_effects: bool
    margin: float | None = None
    most_ticks: int = MOST_TICKS
    sides: tuple[str, str] = ("lower loss", "higher loss")
    plotted: str = ""
    """What is drawn, if that is not the difference in loss."""
    skewed: bool = False
    """Whether intervals are longer on one side by nature, as those of ratios are."""

    @property
    def is_lopsided(self) -> bool:
        """Whether some interval reaches clearly further on one side of its mean, as tuning makes it."""
        for value in () if self.skewed else (row.difference for row in self.rows):
            if value is not None and value.low is not None and value.high is not None:
                middle, half = (value.low + value.high) / 2, (value.high - value.low) / 2
                if abs(middle - value.mean) > LOPSIDED * half:
                    return True
        return False

    @cached_property
    def axis(self) -> Axis:
        return Axis.of(self.rows)

    def brief(self, most: int) -> Ranked:
        """The baseline and the rows farthest from it, at most `most`, without costs."""
        apart = sorted(self.rows, key=lambda row: (row.kind != "baseline", row.difference is None, -row.reach))[:most]
        return replace(self, rows=tuple(row for row in self.rows if row in apart), columns=(), most_ticks=3)

    @property
    def scrolls(self) -> bool:
        return len(self.rows) > SCREEN

    def cell(self, row: RankedRow, cost: Cost) -> RankedCell | None:
        """A cost of a row; None if it is unknown."""
        value = row.costs.get(cost.key)
        if value is None:
            return None
        told = value.low == value.high or value.excludes(1)
        kind = "same" if not told or abs(value.mean - 1) < VISIBLE / 4 else "cheaper" if value.mean < 1 else "dearer"
        # a column's bars are scaled to its most extreme ratio in doublings, at least one
        known = (each.costs.get(cost.key) for each in self.rows)
        reach = max(1.0, *(abs(math.log2(each.mean)) for each in known if each is not None))
        interval = "" if value.low == value.high else f"{value.low:.2f} to {value.high:.2f}"
        return RankedCell(
            f"{value.mean:.2f}×" if value.mean >= 0.1 else f"{value.mean:.2g}×",
            interval,
            kind,
            round(50 + 46 * math.log2(value.mean) / reach, 2),
        )
