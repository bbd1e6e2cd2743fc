"""The result figure of a recorded result: every arm in a row, as its report had it, without the runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from reports.pages.ranked import Ranked, Row
from reports.pages.ranking import differs, said_alike
from reports.reading.outcomes import FAILED
from reports.results.document import RecordedArm, RecordedInterval, RecordedResult
from reports.sections._costs import Cost
from reports.sections.trade_off import rank
from reports.statistics.estimates import NO_DIFFERENCE, SAME_RATIO, Estimate
from reports.wording.arm_names import brief
from reports.wording.words import interval, plus_minus

MOST_COLUMNS = 5
DECLARED = ("kv-", "parameters", "flops-per-token")
"""Beginnings of the keys of costs that follow from the architecture."""


def ranked_result(result: RecordedResult) -> Ranked:
    """The figure. A design, whose arms are compared with nothing, has a row for each effect."""
    costs = sorted(_costs(result.arms), key=rank)
    columns = [cost for cost in costs if differs(cost)][:MOST_COLUMNS]
    rows = list(_effects(result) if result.effects else _arms(result, costs))
    rows.sort(key=lambda row: (row.difference is None, row.difference.mean if row.difference else 0.0))
    alike = said_alike([cost for cost in costs if cost not in columns])
    return Ranked(tuple(rows), tuple(columns), alike, result.baseline, result.unit, bool(result.effects))


def _costs(arms: Sequence[RecordedArm]) -> Iterator[Cost]:
    labels = {key: cost.label for arm in arms for key, cost in arm.costs.items()}
    for key, label in labels.items():
        known = {arm.name: arm.costs[key] for arm in arms if key in arm.costs}
        ratios = {name: Estimate(cost.ratio, cost.low, cost.high, None, ()) for name, cost in known.items()}
        yield Cost(key, label, ratios, declared=key.startswith(DECLARED))


def _arms(result: RecordedResult, costs: Sequence[Cost]) -> Iterator[Row]:
    names, base = brief([arm.name for arm in result.arms]), result.arm(result.baseline)
    for arm in result.arms:
        is_base = arm.name == result.baseline
        found = None if arm.verdict in FAILED else _paired(arm, base)
        failed = len(arm.stalled) + len(arm.diverged)
        yield Row(
            name=arm.name,
            label=names[arm.name],
            gloss="",
            verdict=arm.verdict,
            difference=NO_DIFFERENCE if is_base else found,
            said=_loss(arm) if is_base else _said(found),
            note=f"{failed} of {failed + len(arm.seeds)} seeds did not train" if failed else "",
            costs={c.key: SAME_RATIO for c in costs} if is_base else _ratios(arm.name, costs),
        )


def _ratios(arm: str, costs: Sequence[Cost]) -> dict[str, Estimate]:
    return {cost.key: cost.ratios[arm] for cost in costs if arm in cost.ratios}


def _effects(result: RecordedResult) -> Iterator[Row]:
    for effect in result.effects:
        found = None if effect.difference is None else _estimate(effect.difference, ())
        yield Row(effect.name, effect.name, "", effect.verdict, found, _said(found), "", {})


def _paired(arm: RecordedArm, base: RecordedArm | None) -> Estimate | None:
    """The difference with its seeds."""
    known = base.seeds if base else {}
    seeds = tuple(loss - known[seed] for seed, loss in arm.seeds.items() if seed in known)
    return None if arm.difference is None else _estimate(arm.difference, seeds)


def _estimate(found: RecordedInterval, values: tuple[float, ...]) -> Estimate:
    """With the ends that the file leaves out as infinite."""
    if found.low is None and found.high is None:
        return Estimate(found.mean, None, None, None, values)
    low, high = (-math.inf if found.low is None else found.low), (math.inf if found.high is None else found.high)
    return Estimate(found.mean, low, high, None, values)


def _loss(arm: RecordedArm) -> str:
    return "" if arm.loss is None else plus_minus(_estimate(arm.loss, ()))


def _said(found: Estimate | None) -> str:
    return "" if found is None else interval(found).removesuffix(" nats")
