"""Costs and qualities of arms relative to the baseline, and the axes that show them.

Costs are ratios, declared by the architecture or measured; qualities are differences of losses and scores, with the
intervals that verdicts use.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import ClassVar

from reports.judge.findings.comparison import ArmCosts, study_costs
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.judge.scores import ItemDifference
from reports.judge.statistics.estimates import Estimate, Span, exact
from reports.page.figures.base import SwitchOption, short
from reports.page.figures.drawing import Attributes, label
from reports.page.wording import words
from reports.page.wording.cost_words import TIME
from reports.page.wording.tables import Better

ALIKE = 5e-3
"""Relative difference below which declared costs count as equal."""


VISIBLE = 0.02
"""Smallest relative difference of a cost that is called a difference."""


@dataclass(frozen=True)
class Cost:
    """`ratios` are arm / baseline; exact for a `declared` cost, else with intervals."""

    key: str
    label: str
    ratios: Mapping[str, Estimate]
    declared: bool = False

    @property
    def name(self) -> str:
        """The label without the place of measurement."""
        return self.label.partition(" at ")[0]

    @property
    def is_same(self) -> bool:
        """Whether the architecture gives all arms the same cost."""
        return self.declared and all_one(self.ratios.values())

    @property
    def differs(self) -> bool:
        """Whether some arm's cost differs visibly and beyond measurement noise."""
        known = self.ratios.values()
        return any(abs(each.mean - 1) > VISIBLE and (self.declared or each.excludes(1)) for each in known)


def all_one(ratios: Iterable[Estimate]) -> bool:
    """Whether all ratios are 1 within `ALIKE`."""
    return all(math.isclose(each.mean, 1, rel_tol=ALIKE) for each in ratios)


def cost_ratios(data: Collected) -> tuple[Cost, ...]:
    """Costs with a ratio for any arm: caches from the longest context down, times, memory and sizes."""
    base, arms = data.study.baseline, data.study.arms
    measured = {arm: found for (arm, other), found in study_costs(data).pairs.items() if other == base}
    caches = []
    for context in sorted({each.context for arm in arms for each in arm.cache_bytes}, reverse=True):
        sizes = {a.name: e.bytes for a in arms for e in a.cache_bytes if e.context == context}
        caches.append(_declared(data, f"kv-{context}", f"KV cache at {context:,} tokens", sizes))
    parameters = _declared(data, "parameters", "total parameters", {arm.name: arm.parameters for arm in arms})
    flops = _declared(data, "flops-per-token", "FLOPs per token", {arm.name: arm.flops_per_token for arm in arms})
    processes = data.costs.processes if data.costs else ()
    point = next((point for each in processes if (point := each.judged("decoding"))), None)
    where = f" at {point.context:,} tokens, batch {point.batch}" if point else ""
    return tuple(cost for cost in (*caches, *measured_costs(measured, where), parameters, flops) if cost.ratios)


def measured_costs(measured: Mapping[str, ArmCosts], where: str = "") -> tuple[Cost, ...]:
    """Times and memory of arms, or of factors. where: context and batch of decoding."""
    training = {name: found.training.inverse() for name, found in measured.items() if found.training}
    decoding = {name: found.decoding.inverse() for name, found in measured.items() if found.decoding}
    memory = {name: found.memory for name, found in measured.items() if found.memory}
    return (
        Cost("training-time", f"training{TIME}", training),
        Cost("decode-time", f"decoding{TIME}{where}", decoding),
        Cost("peak-memory", "peak memory in training", memory),
    )


def _declared(data: Collected, key: str, label: str, by_arm: Mapping[str, float]) -> Cost:
    base = by_arm.get(data.study.baseline)
    others = {name: value / base for name, value in by_arm.items() if name != data.study.baseline} if base else {}
    return Cost(key, label, {name: exact(ratio) for name, ratio in others.items() if ratio > 0}, declared=True)


PERPLEXITIES = ("byte_perplexity", "word_perplexity")
"""Metrics equivalent to bits per byte, on a scale whose differences have no meaning."""


@dataclass(frozen=True)
class Quality:
    """Differences arm − baseline, paired by seed, and which direction is better."""

    label: str
    better: Better
    differences: Mapping[str, Estimate]


def qualities(summary: StudySummary) -> tuple[Quality, ...]:
    """The loss, then scores for which the better direction is known."""
    losses = {arm.name: arm.comparison.difference for arm in summary.arms if arm.comparison}
    known = {name: value for name, value in losses.items() if value is not None}
    qualities = [Quality(f"difference in loss ({summary.unit})", "low", known)]
    found: dict[tuple[str, str, bool], dict[str, Estimate]] = {}
    for arm in summary.arms:
        for item in arm.items:
            if item.difference is not None and item.higher_is_better is not None and is_drawn(item, summary):
                at = item.task, item.metric, item.higher_is_better
                value = Estimate(item.difference, item.low, item.high, None, item.by_seed)
                found.setdefault(at, {})[arm.name] = value
    for (task, metric, higher), differences in found.items():
        qualities.append(Quality(f"difference in {task}: {metric}", "high" if higher else "low", differences))
    return tuple(each for each in qualities if each.differences)


def is_drawn(item: ItemDifference, summary: StudySummary) -> bool:
    """Whether figures show the item: tasks of groups, and perplexities, appear only in tables."""
    return item.task not in summary.grouped and item.metric not in PERPLEXITIES


ARROWS = {("x", "low"): "←", ("x", "high"): "→", ("y", "low"): "↓", ("y", "high"): "↑"}
RELATIVE, BROKEN = ", relative", "<br>relative"
"""Where the name of an axis is broken into two lines, since phones are narrow."""
FACTORS = 1.5
"""Axes with a ratio this far from 1 have factors as ticks; others have percentages."""
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
MOST_TICKS = 6
LEAST_ROOM = 0.01
"""Half of an axis's length if all points agree, in its own unit."""
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
        margin = 0.15 * (high - low) or LEAST_ROOM
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


def _ends(value: Estimate) -> tuple[float, float]:
    """The interval; the mean itself without one."""
    return (value.mean, value.mean) if value.low is None or value.high is None else (value.low, value.high)


def points(x: Against, y: Against) -> Sequence[tuple[Span, Span] | None]:
    """Intervals of both coordinates of each point; None for a missing point."""
    pairs = zip(x.spans(), y.spans(), strict=True)
    return [None if a is None or b is None else (a, b) for a, b in pairs]
