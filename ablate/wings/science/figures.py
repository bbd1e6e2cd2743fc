"""Figures of the atlas: the forest plot of a card, and the result figure of a recorded result.

A forest plot has one strip per row, on a common axis, with positions in per cent of the width. A result figure has one
row per arm, as in the study's report, without the runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ablate.wings.results.document import RecordedInterval, RecordedResult
from ablate.wings.science.cards import Card, CardRow, paired
from ablate.wings.science.sections.claims import MARKS
from reports.judge.reading.outcomes import FAILED
from reports.judge.statistics.estimates import NO_DIFFERENCE, SAME_RATIO, Estimate
from reports.page.html.ranked import RING, SHAPES, Axis, Ranked, RankedRow
from reports.page.html.ranking import said_alike
from reports.page.sections._against import Cost
from reports.page.sections.trade_off import rank
from reports.page.wording import words
from reports.page.wording.arm_words import brief
from reports.page.wording.words import interval, plus_minus

SHAPE_OF = {**SHAPES, **MARKS, "better": SHAPES["lower"], "worse": SHAPES["higher"]}
SHAPE_OF |= dict.fromkeys(FAILED, SHAPES["failed"])
"""SVG path of a mark by outcome or verdict; undecided ones have `RING`."""
SMALL = (0.01, 0.02, 0.05, 0.1, 0.125, 0.2, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95)
RATIOS = (*SMALL, 1.0, 1.05, 1.1, 1.2, 1.4, 2.0, 4.0, 5.0, 8.0, 10.0, 20.0, 50.0, 100.0)
"""Ticks of an axis of ratios."""
TEXT_WIDTH = 20.0
"""Width of a tick's text, in per cent of the narrowest axis, in one of three columns of cards."""
MOST_TICKS = 5


@dataclass(frozen=True)
class Strip:
    """A row with positions: `mark` is the mean, `bar` the interval."""

    row: CardRow
    kind: str
    """CSS class of the outcome."""
    shape: str
    mark: float | None
    bar: tuple[float, float] | None
    seeds: tuple[float, ...]
    said: str


@dataclass(frozen=True)
class Forest:
    """Strips, the positions of no effect and of the published effect, and the axis."""

    strips: tuple[Strip, ...]
    zero: float
    published: float | None
    ticks: tuple[tuple[float, str], ...]
    unit: str

    @property
    def is_drawn(self) -> bool:
        return any(strip.mark is not None for strip in self.strips)


def forest(card: Card) -> Forest:
    """The plot of a card."""
    effects = [each for row in card.rows if (each := row.effect) is not None]
    values = [card.published, *(end for each in effects for end in (each.mean, each.low, each.high))]
    axis = axis_over([0.0, *(_at(card, value) for value in values if value is not None)])
    return Forest(
        strips=tuple(_strip(card, row, axis) for row in card.rows),
        zero=axis.place(0.0),
        published=None if card.published is None else axis.place(_at(card, card.published)),
        ticks=ratio_ticks(axis) if card.is_ratio else axis.ticks(MOST_TICKS),
        unit="ratio" if card.is_ratio else "nats" if card.claim is None or card.claim.measure == "loss" else "",
    )


def axis_over(values: Sequence[float]) -> Axis:
    """An axis that contains all values, with room on both sides of zero."""
    room = 0.12 * max(map(abs, values)) or 0.01
    return Axis(min(*values, -room), max(*values, room))


def _at(card: Card, value: float) -> float:
    """Position on the axis before scaling: ratios are logarithmic, so that 1 is at zero."""
    return math.log(value) if card.is_ratio else value


def ratio_ticks(axis: Axis) -> tuple[tuple[float, str], ...]:
    """Round ratios from 1 outwards, at least a text's width apart."""
    inside = [each for each in RATIOS if not axis.cuts(math.log(each))]
    middle, kept = inside.index(1.0), [1.0]
    for side in (inside[middle::-1], inside[middle:]):
        last = 1.0
        for each in side:
            if abs(axis.place(math.log(each)) - axis.place(math.log(last))) >= TEXT_WIDTH:
                last = each
                kept.append(each)
    return tuple((axis.place(math.log(each)), f"{each:g}×") for each in sorted(kept))


def _strip(card: Card, row: CardRow, axis: Axis) -> Strip:
    effect, ends = row.effect, None
    if effect is not None and not (effect.low is None and effect.high is None):
        low = axis.low if effect.low is None else _at(card, effect.low)
        high = axis.high if effect.high is None else _at(card, effect.high)
        ends = (axis.place(low), axis.place(high))
    return Strip(
        row=row,
        kind=row.outcome.replace(" ", "-"),
        shape=SHAPE_OF.get(row.outcome, RING),
        mark=None if effect is None else axis.place(_at(card, effect.mean)),
        bar=ends,
        seeds=tuple(axis.place(each) for each in row.seeds if not axis.cuts(each)),
        said=said(row.effect, card.is_ratio),
    )


def said(effect: RecordedInterval | None, is_ratio: bool = False) -> str:
    """`+0.059 (+0.024 to +0.094)`, `0.125×`; empty without an effect."""
    if effect is None:
        return ""
    if is_ratio:
        known = effect.low is not None and effect.high is not None and effect.low != effect.high
        return f"{effect.mean:.3g}×" + (f" ({effect.low:.3g} to {effect.high:.3g})" if known else "")
    if effect.low is None and effect.high is None:
        return words.signed(effect.mean, 3)
    low = -math.inf if effect.low is None else effect.low
    high = math.inf if effect.high is None else effect.high
    digits = words.decimals((high - low) / 2)
    return f"{words.signed(effect.mean, digits)} ({words.signed(low, digits)} to {words.signed(high, digits)})"


MOST_COLUMNS = 5
DECLARED = ("kv-", "parameters", "flops-per-token")
"""Prefixes of the keys of costs that follow from the architecture."""


def ranked_result(result: RecordedResult) -> Ranked:
    """The result figure, with one row per arm, or per effect of a design, whose arms are not compared."""
    labels = {key: cost.label for arm in result.arms for key, cost in arm.costs.items()}
    costs = []
    for key, label in labels.items():
        known = {arm.name: arm.costs[key] for arm in result.arms if key in arm.costs}
        ratios = {name: Estimate(cost.ratio, cost.low, cost.high, None, ()) for name, cost in known.items()}
        costs.append(Cost(key, label, ratios, declared=key.startswith(DECLARED)))
    costs.sort(key=rank)
    columns = [cost for cost in costs if cost.differs][:MOST_COLUMNS]
    found = [(each, _estimate(each.difference, ()) if each.difference else None) for each in result.effects]
    effects = [RankedRow(each.name, each.name, "", each.verdict, of, _said(of), "", {}) for each, of in found]
    rows = effects or list(_arms(result, costs))
    rows.sort(key=lambda row: (row.difference is None, row.difference.mean if row.difference else 0.0))
    alike = said_alike([cost for cost in costs if cost not in columns])
    return Ranked(tuple(rows), tuple(columns), alike, result.baseline, result.unit, bool(result.effects), result.margin)


def _arms(result: RecordedResult, costs: Sequence[Cost]) -> Iterator[RankedRow]:
    names = brief([arm.name for arm in result.arms])
    for arm in result.arms:
        is_base = arm.name == result.baseline
        difference = None if arm.verdict in FAILED else arm.difference
        found = None if difference is None else _estimate(difference, paired(result, arm))
        loss = "" if arm.loss is None else "loss " + plus_minus(_estimate(arm.loss, ()))
        failed = len(arm.stalled) + len(arm.diverged)
        yield RankedRow(
            name=arm.name,
            label=names[arm.name],
            gloss="",
            verdict=arm.verdict,
            difference=NO_DIFFERENCE if is_base else found,
            said=loss if is_base else _said(found),
            note=f"{failed} of {failed + len(arm.seeds)} seeds did not train" if failed else "",
            costs={
                cost.key: SAME_RATIO if is_base else cost.ratios[arm.name]
                for cost in costs
                if is_base or arm.name in cost.ratios
            },
        )


def _estimate(found: RecordedInterval, values: tuple[float, ...]) -> Estimate:
    """An estimate from a recorded interval; an end that is null is infinite if the other end is known."""
    if found.low is None and found.high is None:
        return Estimate(found.mean, None, None, None, values)
    low, high = (-math.inf if found.low is None else found.low), (math.inf if found.high is None else found.high)
    return Estimate(found.mean, low, high, None, values)


def _said(found: Estimate | None) -> str:
    return "" if found is None else interval(found).removesuffix(" nats")
