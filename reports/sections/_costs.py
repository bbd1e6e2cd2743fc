"""Costs of arms as ratios to the baseline: those that the architecture declares, and those that were measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reports.findings.costs import ArmCosts, study_costs
from reports.reading.collected import Collected
from reports.statistics.estimates import Estimate, exact
from reports.wording.cost_words import TIME

ALIKE = 5e-3
"""Declared costs that differ by less are the same."""


@dataclass(frozen=True)
class Cost:
    """`ratios` are arm / baseline. Those of a `declared` cost are exact; others have intervals."""

    key: str
    label: str
    ratios: Mapping[str, Estimate]
    declared: bool = False

    @property
    def name(self) -> str:
        """Without where it was measured."""
        return self.label.partition(" at ")[0]

    @property
    def is_decoding(self) -> bool:
        return self.key.startswith("decode-")

    @property
    def is_same(self) -> bool:
        """Whether the architecture gives all arms the same."""
        return self.declared and all_one(self.ratios.values())


def all_one(ratios: Iterable[Estimate]) -> bool:
    """Whether none differs from 1 visibly."""
    return all(math.isclose(each.mean, 1, rel_tol=ALIKE) for each in ratios)


def cost_ratios(data: Collected) -> tuple[Cost, ...]:
    """Those that any arm has beside the baseline: caches from the longest context on, times, memory and sizes."""
    base, arms = data.study.baseline, data.study.arms
    measured = {arm: found for (arm, other), found in study_costs(data).pairs.items() if other == base}
    caches = []
    for context in sorted({each.context for arm in arms for each in arm.cache_bytes}, reverse=True):
        sizes = {a.name: e.bytes for a in arms for e in a.cache_bytes if e.context == context}
        caches.append(_declared(data, f"kv-{context}", f"KV cache at {context:,} tokens", sizes))
    parameters = _declared(data, "parameters", "parameters", {arm.name: arm.parameters for arm in arms})
    flops = _declared(data, "flops-per-token", "FLOPs per token", {arm.name: arm.flops_per_token for arm in arms})
    processes = data.costs.processes if data.costs else ()
    point = next((point for each in processes if (point := each.judged("decoding"))), None)
    where = f" at {point.context:,} tokens, batch {point.batch}" if point else ""
    return tuple(cost for cost in (*caches, *measured_costs(measured, where), parameters, flops) if cost.ratios)


def measured_costs(measured: Mapping[str, ArmCosts], where: str = "") -> tuple[Cost, ...]:
    """Times and memory of arms, or of factors. where: the context and batch of decoding."""
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
