"""Costs of arms as ratios to the baseline, declared by the architecture or measured, and qualities as differences from
it, with the intervals that verdicts use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reports.judge.findings.costs import ArmCosts, study_costs
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.judge.scores import ItemDifference
from reports.judge.statistics.estimates import Estimate, exact
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
