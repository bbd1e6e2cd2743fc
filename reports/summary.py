"""From frames to findings: estimates over seeds, paired differences, verdicts. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from reports import curves, stability, warnings
from reports.collect import Collected, ReportError, collect
from reports.findings import ArmSummary, Budget, Comparison, Noise, Score, StudySummary, Verdict
from reports.statistics import (
    ALPHA,
    Estimate,
    combined_stderr,
    estimate,
    geometric,
    holm,
    paired_p,
    smallest_detectable,
)


def summarise_study(study_dir: Path | str) -> StudySummary:
    """Collect and summarise. Raises ReportError where the runs must not be compared."""
    return summarise(collect(study_dir))


def summarise(data: Collected) -> StudySummary:
    """Pure: frames in, tuples out. Raises ReportError when runs were trained on different data."""
    digests = sorted(data.runs["data"].drop_nulls().unique())
    if len(digests) > 1:
        raise ReportError(f"runs trained on different data cannot be compared: {', '.join(digests)}")
    arms = _arms(data)
    study = data.study
    return StudySummary(
        name=study["name"],
        scale=study["scale"],
        question=study["question"],
        source=study["source"],
        created=study["created"],
        baseline=study["baseline"],
        matched=study["matched"],
        arms=arms,
        noise=_noise(arms),
        warnings=warnings.find(data),
        training=curves.training_curves(data),
        differences=curves.difference_curves(data),
        contexts=curves.context_curves(data),
        probes=stability.probe_curves(data),
        scaling=stability.gradient_scaling(data),
        environment=warnings.environment(data),
        runs=data.runs,
    )


def _arms(data: Collected) -> tuple[ArmSummary, ...]:
    comparisons = {
        arm["name"]: _compare(data, arm) for arm in data.study["arms"] if arm["name"] != data.study["baseline"]
    }
    corrected = _corrected(comparisons)
    return tuple(_arm(data, arm, corrected.get(arm["name"])) for arm in data.study["arms"])


def _compare(data: Collected, arm: dict[str, Any]) -> Comparison:
    base_name = data.study["baseline"]
    base = next(arm for arm in data.study["arms"] if arm["name"] == base_name)
    pairs = _finished(data, arm["name"]).join(_finished(data, base_name), on="seed", suffix="_base").sort("seed")
    difference = estimate((pairs["loss"] - pairs["loss_base"]).to_list())
    p = None if difference is None or not difference.sd else float(paired_p(difference.values))
    kv, base_kv = arm.get("kv_bytes_per_token"), base.get("kv_bytes_per_token")
    return Comparison(
        difference=difference,
        seeds=tuple(pairs["seed"]),
        p=p,
        p_holm=p,
        detectable_nats=_detectable(difference, len(data.study["arms"]) - 1),
        speed_ratio=_ratio(pairs, "tokens_per_second"),
        memory_ratio=_ratio(pairs, "peak_memory_bytes"),
        kv_ratio=kv / base_kv if kv is not None and base_kv else None,
    )


def _detectable(difference: Estimate | None, comparisons: int) -> float | None:
    if difference is None or not difference.sd:
        return None
    return smallest_detectable(difference.sd, len(difference.values), comparisons)


def _ratio(pairs: pl.DataFrame, column: str) -> Estimate | None:
    rows = pairs.drop_nulls([column, f"{column}_base"])
    return geometric((rows[column] / rows[f"{column}_base"]).to_list())


def _corrected(comparisons: dict[str, Comparison]) -> dict[str, Comparison]:
    """The same comparisons with Holm's correction over those that have a p."""
    tested = {name: c.p for name, c in comparisons.items() if c.p is not None}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    return {name: replace(c, p_holm=corrected.get(name)) for name, c in comparisons.items()}


def _arm(data: Collected, arm: dict[str, Any], comparison: Comparison | None) -> ArmSummary:
    name = arm["name"]
    runs = data.runs.filter(arm=name)
    finished = _finished(data, name)
    diverged = tuple(runs.filter(status="diverged")["seed"])
    return ArmSummary(
        name=name,
        edits=tuple((path, json.dumps(value)) for path, value in arm["edits"].items()),
        seeds=tuple(finished["seed"]),
        diverged=diverged,
        missing=tuple(runs.filter(pl.col("status").is_in(["absent", "partial"]))["seed"]),
        loss=_over_seeds(finished, "loss"),
        bits_per_byte=_over_seeds(finished, "bits_per_byte"),
        tokens_per_second=_over_seeds(finished, "tokens_per_second"),
        mfu=_over_seeds(finished, "mfu"),
        peak_memory_bytes=_over_seeds(finished, "peak_memory_bytes"),
        kv_bytes_per_token=arm.get("kv_bytes_per_token"),
        cache_bytes=tuple((c["context"], c["bytes"]) for c in arm.get("cache_bytes", ())),
        parameters_embedding=arm["parameters_embedding"],
        flops_per_token=arm["flops_per_token"],
        budget=_budget(arm, finished),
        scores=_scores(data, name),
        comparison=comparison,
        verdict=decide(comparison, len(diverged), len(finished), _diverged(data, data.study["baseline"])),
    )


def _diverged(data: Collected, arm: str) -> int:
    return data.runs.filter(arm=arm, status="diverged").height


def decide(comparison: Comparison | None, diverged: int, finished: int, baseline_diverged: int = 0) -> Verdict:
    """Lower loss is better. An arm of which a seed diverged is never better, nor is one worse than such a baseline.

    Fewer than two pairs, or seeds that all give the same difference, cannot tell.
    """
    if diverged and not finished:
        return "diverged"
    if comparison is None:
        return "baseline"
    if comparison.difference is None or comparison.p_holm is None:
        return "cannot tell"
    if comparison.p_holm >= ALPHA:
        return "inconclusive"
    if comparison.difference.mean > 0:
        return "inconclusive" if baseline_diverged > diverged else "worse"
    return "inconclusive" if diverged else "better"


def _finished(data: Collected, arm: str) -> pl.DataFrame:
    return data.runs.filter(arm=arm, status="finished").sort("seed")


def _over_seeds(runs: pl.DataFrame, column: str) -> Estimate | None:
    return estimate(runs[column].drop_nulls().to_list())


def _budget(arm: dict[str, Any], finished: pl.DataFrame) -> Budget:
    seconds = finished["train_seconds"].drop_nulls().to_list()
    return Budget(
        tokens=arm["tokens"],
        steps=arm["steps"],
        flops=arm["tokens"] * arm["flops_per_token"],
        parameters=arm["parameters"],
        train_seconds=sum(seconds) / len(seconds) if seconds else None,
    )


def _scores(data: Collected, arm: str) -> tuple[Score, ...]:
    groups = data.evals.filter(arm=arm).group_by("task", "metric", maintain_order=True)
    return tuple(
        Score(
            task=str(task),
            metric=str(metric),
            **_mean_score(rows["value"].to_list(), rows["stderr"].to_list()),
            higher_is_better=rows["higher_is_better"][0],
            chance=rows["chance"][0],
            seeds=rows.height,
        )
        for (task, metric), rows in groups
    )


def _mean_score(values: list[float | None], stderrs: list[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return {"value": None, "stderr": None}
    return {"value": sum(known) / len(known), "stderr": combined_stderr(stderrs, known)}


def _noise(arms: tuple[ArmSummary, ...]) -> Noise:
    return Noise(
        loss_sd=_pooled([arm.loss for arm in arms]),
        difference_sd=_pooled([arm.comparison.difference for arm in arms if arm.comparison]),
    )


def _pooled(estimates: list[Estimate | None]) -> float | None:
    """√(Σ (n−1)·sd² / Σ (n−1)) over the estimates that have a standard deviation."""
    known = [(len(e.values) - 1, e.sd) for e in estimates if e is not None and e.sd is not None]
    if not known:
        return None
    return math.sqrt(sum(n * sd * sd for n, sd in known) / sum(n for n, _ in known))
