"""What arms cost, as ratios to the baseline: of what the architecture declares, and of what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from reports.findings.disturbed import alone, disturbances
from reports.findings.verdicts import measured_ratio
from reports.reading.collected import Collected
from reports.statistics.estimates import Estimate
from reports.wording.cost_words import BESIDE, TIME

ALIKE = 5e-3
"""Declared costs that differ by less are the same."""


@dataclass(frozen=True)
class Cost:
    """`ratios` are arm / baseline, paired by seed. Those of a `declared` cost are exact; others have intervals, and are
    the arms' own if measured `alone`."""

    key: str
    label: str
    ratios: Mapping[str, Estimate]
    declared: bool = False
    alone: bool = True

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
    found = (*_caches(data), _time(data), *_decoding(data), _memory(data), *_sizes(data))
    return tuple(cost for cost in found if cost.ratios)


def _caches(data: Collected) -> Iterator[Cost]:
    contexts = {each.context for arm in data.study.arms for each in arm.cache_bytes}
    for context in sorted(contexts, reverse=True):
        sizes = {a.name: e.bytes for a in data.study.arms for e in a.cache_bytes if e.context == context}
        yield _declared(data, f"kv-{context}", f"KV cache at {context:,} tokens", sizes)


def _sizes(data: Collected) -> Iterator[Cost]:
    arms = data.study.arms
    yield _declared(data, "parameters", "parameters", {arm.name: arm.parameters for arm in arms})
    yield _declared(data, "flops-per-token", "FLOPs per token", {arm.name: arm.flops_per_token for arm in arms})


def _declared(data: Collected, key: str, label: str, by_arm: Mapping[str, float]) -> Cost:
    base = by_arm.get(data.study.baseline)
    others = {name: value / base for name, value in by_arm.items() if name != data.study.baseline} if base else {}
    exact = {name: Estimate(ratio, ratio, ratio, None, (ratio,)) for name, ratio in others.items() if ratio > 0}
    return Cost(key, label, exact, declared=True)


def _time(data: Collected) -> Cost:
    per_token = 1 / pl.col("tokens_per_second")
    is_alone = not any(disturbances(data.runs).values())
    label = f"training{TIME}" + ("" if is_alone else f" {BESIDE}")
    return Cost("training-time", label, _paired(data, _finished(data), per_token), alone=is_alone)


def _memory(data: Collected) -> Cost:
    return Cost("peak-memory", "peak memory in training", _paired(data, _finished(data), pl.col("peak_memory_bytes")))


def _finished(data: Collected) -> pl.DataFrame:
    return data.runs.filter(status="finished")


def _decoding(data: Collected) -> Iterator[Cost]:
    """Time for one more token of every sequence of the batch, from the longest context on."""
    rows = data.frames["measures"].filter(kind="decode").drop_nulls("median")
    rows = rows.filter(alone("waiting"))
    places = rows.select("context", "batch").unique().sort("context", "batch", descending=[True, False])
    for context, batch in places.iter_rows():
        label = f"decoding{TIME} at {context:,} tokens, batch {batch}"
        found = rows.filter(context=context, batch=batch)
        yield Cost(f"decode-{context}-{batch}", label, _paired(data, found, 1 / pl.col("median")))


def _paired(data: Collected, rows: pl.DataFrame, value: pl.Expr) -> dict[str, Estimate]:
    """Of each arm the geometric mean over the seeds that the baseline has too. A single pair has the interval that the
    turns of both leave, where they were measured in turns."""
    within = pl.col("within") if "within" in rows.columns else pl.lit(None, pl.Float64)
    columns = rows.select("arm", "seed", value=value, value_within=within)
    known = columns.drop_nulls("value").filter(pl.col("value") > 0)
    base = known.filter(arm=data.study.baseline)
    both = known.filter(pl.col("arm") != data.study.baseline).join(base, on="seed", suffix="_base").sort("seed")
    ratios = {arm.name: measured_ratio(both.filter(arm=arm.name), "value") for arm in data.study.arms}
    return {name: ratio for name, ratio in ratios.items() if ratio is not None}
