"""The result figure: every arm in a row, the lowest loss first, with what it costs. HTML and SVG, without a script.

Positions across a row are percentages of its width, so that the figure fits any screen as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from ablate.noise.scatter import Odd
from reports.figures.style import spelled
from reports.findings.costs import ArmCosts
from reports.findings.shapes import ArmSummary, Comparison, StudySummary, Verdict
from reports.reading.outcomes import FAILED
from reports.sections._costs import Cost
from reports.sections.failures import Failures
from reports.sections.trade_off import TradeOff
from reports.statistics.estimates import Estimate
from reports.statistics.front import surely_beaten
from reports.wording import cost_words, failure_words, gloss_words, words
from reports.wording.listing import listed

VISIBLE = 0.02
"""A cost that no arm changes by more than this share has no column."""
MOST_COLUMNS = 5
SCREEN = 12
"""Number of rows that fit a screen; of more, arms on the front of loss and cost come first."""
FARTHEST = 5
"""The axis ends where this many times the median reach of a row does: one arm far off leaves room for the others."""
MARGIN = 4.0
"""Per cent of the width left free at either end."""
MOST_TICKS = 6
SHAPES = {
    "baseline": "M0,-7 L7,0 L0,7 L-7,0 Z",
    "better": "M-7,0 L5,-7 L5,7 Z",
    "worse": "M7,0 L-5,-7 L-5,7 Z",
    "no difference": "M-6,-6 H6 V6 H-6 Z",
    "failed": "M-5,-5 L5,5 M5,-5 L-5,5",
}
"""Outline of the mark of a verdict, in pixels around its place; a ring for what is open."""
RING = "M-5.5,0 a5.5,5.5 0 1,0 11,0 a5.5,5.5 0 1,0 -11,0"


@dataclass(frozen=True)
class Cell:
    """A cost of an arm beside the baseline's: text, interval, and a bar from the middle to `end` per cent."""

    text: str
    interval: str
    kind: str
    """`cheaper`, `dearer` or `same`, which no measurement tells apart."""
    end: float


@dataclass(frozen=True)
class Row:
    """An arm or effect. `difference` is None where there is nothing to draw; `note` then says why."""

    name: str
    gloss: str
    verdict: Verdict
    difference: Estimate | None
    said: str
    note: str
    costs: Mapping[str, Estimate]

    @property
    def label(self) -> str:
        """The name as it is read."""
        return spelled(self.name)

    @property
    def kind(self) -> str:
        """Class of the verdict in style sheets, and key of its shape."""
        return "failed" if self.verdict in FAILED else self.verdict

    @property
    def shape(self) -> str:
        return SHAPES.get(self.kind, RING)

    @property
    def reach(self) -> float:
        """Distance from zero of what the row draws, as far as it has an end."""
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
    def of(cls, rows: Sequence[Row]) -> Axis:
        reaches = [row.reach for row in rows if row.reach]
        limit = min(max(reaches, default=0.01), FARTHEST * median(reaches or [0.01]))
        shown = [value for row in rows for value in _drawn(row) if math.isfinite(value)]
        low, high = (min(limit, max(-limit, end)) for end in (min(shown, default=0.0), max(shown, default=0.0)))
        least = 0.1 * limit
        return cls(min(low, -least), max(high, least))

    def place(self, value: float) -> float:
        """Percentage of the width, at an end for what lies beyond it."""
        share = (min(self.high, max(self.low, value)) - self.low) / (self.high - self.low)
        return round(MARGIN + (100 - 2 * MARGIN) * share, 2)

    def cuts(self, value: float) -> bool:
        return not self.low <= value <= self.high

    def ticks(self, most: int = MOST_TICKS) -> tuple[tuple[float, str], ...]:
        """Places and texts of round numbers."""
        rough = (self.high - self.low) / most
        power = 10 ** math.floor(math.log10(rough))
        step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough)
        digits = max(0, -math.floor(math.log10(step)))
        found = (place * step for place in range(math.ceil(self.low / step), math.floor(self.high / step) + 1))
        return tuple((self.place(value), words.signed(value, digits) if value else "0") for value in found)


def _drawn(row: Row) -> Iterator[float]:
    if row.difference is not None:
        known = (row.difference.mean, row.difference.low, row.difference.high)
        yield from (each for each in known if each is not None)


@dataclass(frozen=True)
class Ranked:
    """The figure: rows in order, the axis of their differences, and the costs that differ."""

    rows: tuple[Row, ...]
    columns: tuple[Cost, ...]
    alike: str
    base: str
    unit: str
    is_of_effects: bool
    most_ticks: int = MOST_TICKS

    @cached_property
    def axis(self) -> Axis:
        return Axis.of(self.rows)

    def brief(self, most: int) -> Ranked:
        """The rows that lie farthest from the baseline, which stays, without costs."""
        apart = sorted(self.rows, key=lambda row: (row.kind != "baseline", row.difference is None, -row.reach))[:most]
        return replace(self, rows=tuple(row for row in self.rows if row in apart), columns=(), most_ticks=3)

    @property
    def scrolls(self) -> bool:
        return len(self.rows) > SCREEN

    def cell(self, row: Row, cost: Cost) -> Cell | None:
        """A cost of a row; None where it is not known."""
        value = row.costs.get(cost.key)
        if value is None:
            return None
        longest = max(abs(math.log(each.mean)) for each in cost.ratios.values()) or 1.0
        told = value.low == value.high or value.excludes(1)
        kind = "same" if not told or abs(value.mean - 1) < VISIBLE / 4 else "cheaper" if value.mean < 1 else "dearer"
        interval = "" if value.low == value.high else f"{value.low:.2f} to {value.high:.2f}"
        return Cell(
            f"{value.mean:.2f}×" if value.mean >= 0.1 else f"{value.mean:.2g}×",
            interval,
            kind,
            round(50 + 46 * math.log(value.mean) / longest, 2),
        )


def ranked(summary: StudySummary) -> Ranked:
    """The figure of a study, with a row for each arm, or for each effect of a design."""
    costs = _effect_costs(summary) if summary.effects else _arm_costs(summary)
    rows = list(_effects(summary, costs)) if summary.effects else [_arm(summary, arm, costs) for arm in summary.arms]
    columns = [cost for cost in costs if _differs(cost)][:MOST_COLUMNS]
    rows.sort(key=_order)
    if len(rows) > SCREEN and columns:
        beaten = surely_beaten([_point(row, columns[0]) for row in rows])
        rows = [row for _, row in sorted(zip(beaten, rows, strict=True), key=lambda each: each[0])]
    alike = _alike(summary, [cost for cost in costs if cost not in columns])
    return Ranked(tuple(rows), tuple(columns), alike, summary.baseline, summary.unit, bool(summary.effects))


def _order(row: Row) -> tuple[bool, float]:
    return row.difference is None, row.difference.mean if row.difference else 0.0


def _point(row: Row, cost: Cost) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Intervals of the difference and of a cost."""
    loss, ratio = row.difference, row.costs.get(cost.key)
    if loss is None or ratio is None:
        return None
    (a, b), (c, d) = ((v.mean if v.low is None else v.low, v.mean if v.high is None else v.high) for v in (loss, ratio))
    return (a, b), (c, d)


BASELINE = Estimate(0.0, None, None, None, ())
SAME = Estimate(1.0, 1.0, 1.0, None, ())


def _arm(summary: StudySummary, arm: ArmSummary, costs: Iterable[Cost]) -> Row:
    is_base = arm.name == summary.baseline
    found = arm.comparison.difference if arm.comparison else None
    loss = words.plus_minus(arm.loss)
    ratios = {
        cost.key: SAME if is_base else cost.ratios[arm.name] for cost in costs if is_base or arm.name in cost.ratios
    }
    return Row(
        name=arm.name,
        gloss=gloss_words.of_arm(summary, arm),
        verdict=arm.verdict,
        difference=BASELINE if is_base and arm.seeds else None if arm.verdict in FAILED else found,
        said=loss if is_base else _said(arm.comparison, arm.verdict),
        note=_note(summary, arm),
        costs=ratios,
    )


def _said(comparison: Comparison | None, verdict: Verdict) -> str:
    if comparison is None or comparison.difference is None or verdict in FAILED:
        return ""
    return words.interval(comparison.difference).removesuffix(" nats")


def _note(summary: StudySummary, arm: ArmSummary) -> str:
    """What a reader of the row must know: seeds that failed or are missing, or one far from the others."""
    failed, total = failure_words.failed(arm), len(arm.seeds) + arm.failed + len(arm.missing)
    missing = f"no result of {len(arm.missing)} of {total} runs{_why(summary, arm)}" if arm.missing else ""
    odd = _odd(arm.outlier) if arm.outlier else ""
    return ", ".join(filter(None, [failed, missing, odd]))


def _odd(run: Odd) -> str:
    """`without seed 2, +0.23 nats off`."""
    return f"{'without ' * run.left_out}seed {run.seed}{',' * run.left_out} {words.signed(run.above, 2)} nats off"


def _why(summary: StudySummary, arm: ArmSummary) -> str:
    """`: CheckpointError: …`, the beginning of what ended a run."""
    section = summary.section(Failures)
    failure = section.of(arm.name) if section else None
    return f": {gloss_words.short(failure.error)}" if failure else ""


def _effects(summary: StudySummary, costs: Sequence[Cost]) -> Iterator[Row]:
    for each in summary.effects:
        yield Row(
            name=each.effect.name,
            gloss=gloss_words.of_effect(summary, each.effect),
            verdict=each.verdict,
            difference=each.comparison.difference,
            said=_said(each.comparison, each.verdict),
            note="",
            costs={cost.key: cost.ratios[each.effect.name] for cost in costs if each.effect.name in cost.ratios},
        )


def _arm_costs(summary: StudySummary) -> tuple[Cost, ...]:
    section = summary.section(TradeOff)
    return section.ranked if section else ()


def _effect_costs(summary: StudySummary) -> tuple[Cost, ...]:
    """Costs of factors: times, memory and the bytes of the cache."""
    found = {each.effect.name: each.comparison.costs for each in summary.effects}
    kinds = (
        ("training-time", "training time per token", _training),
        ("decode-time", "decoding time per token", _decoding),
        ("peak-memory", "peak memory in training", lambda each: each.memory),
        ("kv", "KV cache", _cache),
    )
    costs = (
        Cost(key, label, {n: value for n, each in found.items() if (value := of(each)) is not None}, key == "kv")
        for key, label, of in kinds
    )
    return tuple(cost for cost in costs if cost.ratios)


def _training(costs: ArmCosts) -> Estimate | None:
    return costs.training.inverse() if costs.training else None


def _decoding(costs: ArmCosts) -> Estimate | None:
    return costs.decoding.inverse() if costs.decoding else None


def _cache(costs: ArmCosts) -> Estimate | None:
    ratio = costs.kv_ratio
    return None if ratio is None else Estimate(ratio, ratio, ratio, None, (ratio,))


def _differs(cost: Cost) -> bool:
    """Whether some arm's differs visibly, and by more than measurements scatter."""
    known = cost.ratios.values()
    return any(abs(each.mean - 1) > VISIBLE and (cost.declared or each.excludes(1)) for each in known)


def _alike(summary: StudySummary, others: Sequence[Cost]) -> str:
    """`The same KV cache and parameters to within 2 %. No measurable difference in peak memory.`"""
    declared = list(dict.fromkeys(cost.name for cost in others if cost.declared))
    measured = list(dict.fromkeys(cost.name for cost in others if not cost.declared))
    said = (
        f"The same {listed(declared)} to within {100 * VISIBLE:.0f} %." if declared else "",
        f"No measurable difference in {listed(measured)}." if measured else "",
        cost_words.unmeasured(summary),
    )
    return " ".join(filter(None, said))
