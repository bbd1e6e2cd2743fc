"""Result figure of a recorded result: one row per arm, as in its report, without the runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ablate.wings.results.document import RecordedInterval, RecordedResult
from ablate.wings.science.cards import paired
from reports.judge.reading.outcomes import FAILED
from reports.judge.statistics.estimates import NO_DIFFERENCE, SAME_RATIO, Estimate
from reports.page.html.ranked import Ranked, RankedRow
from reports.page.html.ranking import said_alike
from reports.page.sections._against import Cost
from reports.page.sections.trade_off import rank
from reports.page.wording.arm_words import brief
from reports.page.wording.words import interval, plus_minus

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
        loss = "" if arm.loss is None else plus_minus(_estimate(arm.loss, ()))
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
