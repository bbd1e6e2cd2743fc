"""Read what a study's runs left in the store into frames. Absent runs are rows too."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from ablate.store import Store, read_json

KEYS = {"arm": pl.String, "seed": pl.Int64, "digest": pl.String}
RUNS: dict[str, Any] = KEYS | {
    "status": pl.String,
    "reason": pl.String,
    "loss": pl.Float64,
    "bits_per_byte": pl.Float64,
    "accuracy": pl.Float64,
    "floor": pl.Float64,
    "train_loss": pl.Float64,
    "tokens_per_second": pl.Float64,
    "mfu": pl.Float64,
    "peak_memory_bytes": pl.Float64,
    "peak_memory_source": pl.String,
    "grad_norm": pl.Float64,
    "grad_norm_spikes": pl.Int64,
    "loss_spikes": pl.Int64,
    "loss_spike_steps": pl.List(pl.Int64),
    "steps": pl.Int64,
    "tokens": pl.Int64,
    "flops": pl.Float64,
    "train_seconds": pl.Float64,
    "wall_seconds": pl.Float64,
    "data": pl.String,
    "dtype": pl.String,
    "matmul": pl.String,
}
CURVES = KEYS | {
    "step": pl.Int64,
    "tokens": pl.Int64,
    "seconds": pl.Float64,
    "loss": pl.Float64,
    "validation_loss": pl.Float64,
    "accuracy": pl.Float64,
}
MEASURES = KEYS | {
    "kind": pl.String,
    "context": pl.Int64,
    "batch": pl.Int64,
    "reason": pl.String,
    "median": pl.Float64,
    "q25": pl.Float64,
    "q75": pl.Float64,
    "declared_bytes": pl.Float64,
    "allocated_bytes": pl.Float64,
}
EVALS = KEYS | {
    "task": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "stderr": pl.Float64,
    "higher_is_better": pl.Boolean,
    "chance": pl.Float64,
}
POSITIONS = KEYS | {
    "multiple": pl.Int64,
    "context": pl.Int64,
    "reason": pl.String,
    "first": pl.Int64,
    "last": pl.Int64,
    "nats_per_token": pl.Float64,
    "stderr": pl.Float64,
    "bits_per_byte": pl.Float64,
}
DIAGNOSTICS = KEYS | {
    "task": pl.String,
    "level": pl.String,
    "length": pl.Int64,
    "reason": pl.String,
    "accuracy": pl.Float64,
    "stderr": pl.Float64,
    "chance": pl.Float64,
}
"""`level` is JSON: the value of each difficulty, by its name."""
LADDER = KEYS | {
    "size": pl.String,
    "parameters": pl.Int64,
    "flops": pl.Float64,
    "loss": pl.Float64,
    "flops_per_second": pl.Float64,
}

SAMPLES = KEYS | {
    "task": pl.String,
    "metric": pl.String,
    "item": pl.String,
    "cluster": pl.String,
    "value": pl.Float64,
    "weight": pl.Float64,
}
"""A score is Σ value / Σ weight over the items; items of one cluster are from one document."""
NATS_PER_BIT = math.log(2)
PERPLEXITIES = ("byte_perplexity", "word_perplexity")
"""Not sums over items; where they are, bits_per_byte says the same."""
NOT_METRICS = ("task", "document", "doc_id", "doc_hash", "filter", "target", "filtered_resps")

PROBES = KEYS | {
    "step": pl.Int64,
    "probe": pl.String,
    "layer": pl.Int64,
    "name": pl.String,
    "value": pl.Float64,
}


class ReportError(Exception):
    """The study cannot be reported: it is missing, or its runs must not be compared."""


@dataclass(frozen=True)
class Collected:
    """A study and its runs. `environments` maps a run's digest to what it ran on."""

    study: dict[str, Any]
    runs: pl.DataFrame
    curves: pl.DataFrame
    measures: pl.DataFrame
    evals: pl.DataFrame
    positions: pl.DataFrame
    diagnostics: pl.DataFrame
    ladder: pl.DataFrame
    samples: pl.DataFrame
    probes: pl.DataFrame
    environments: dict[str, dict[str, Any]]

    @property
    def per(self) -> str:
        """What losses are compared per: `token`, or `byte`, as study.json says."""
        return str(self.study.get("per", "token"))

    @cached_property
    def curve_of(self) -> dict[tuple[Any, ...], pl.DataFrame]:
        """The curve of each run by (arm, digest): two arms may share a run."""
        return self.curves.partition_by("arm", "digest", as_dict=True)


def collect(study_dir: Path | str) -> Collected:
    """Read a study's folder and the runs it names. Raises ReportError without a study there."""
    study = read_json(Path(study_dir) / "study.json")
    if study is None:
        raise ReportError(f"{study_dir} holds no study.json")
    store = Store.of_study(study_dir)
    keys = list(_keys(study))
    return Collected(
        study=study,
        runs=pl.DataFrame([_run_row(store, key) for key in keys], schema=RUNS),
        curves=pl.concat([pl.DataFrame(schema=CURVES), *(_curve(store, key) for key in keys)]),
        measures=pl.DataFrame(_measure_rows(store, study, keys), schema=MEASURES),
        evals=pl.DataFrame(_eval_rows(store, study, keys), schema=EVALS),
        positions=pl.DataFrame(_position_rows(store, study, keys), schema=POSITIONS),
        diagnostics=pl.DataFrame(_diagnostic_rows(store, study, keys), schema=DIAGNOSTICS),
        ladder=pl.DataFrame(list(_ladder_rows(store, study)), schema=LADDER),
        samples=pl.DataFrame(_sample_rows(store, study, keys), schema=SAMPLES),
        probes=pl.concat([pl.DataFrame(schema=PROBES), *(_probes(store, key) for key in keys)]),
        environments={key["digest"]: _environment(store, key["digest"]) for key in keys},
    )


def _keys(study: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for arm in study["arms"]:
        for run in arm["runs"]:
            yield {"arm": arm["name"], "seed": run["seed"], "digest": run["digest"]}


def _run_row(store: Store, key: dict[str, Any]) -> dict[str, Any]:
    digest = key["digest"]
    identity = store.read_run(digest) or {}
    result = store.read_result(digest) or {}
    numerics = identity.get("numerics", {})
    return key | {
        "status": store.status(digest),
        **{name: result.get(name) for name in RUNS if name in result and name not in key},
        "tokens_per_second": result.get("tokens_per_second", {}).get("median"),
        "grad_norm": result.get("grad_norm", {}).get("median"),
        "grad_norm_spikes": result.get("grad_norm", {}).get("spikes"),
        "data": identity.get("data", {}).get("digest"),
        "dtype": numerics.get("dtype"),
        "matmul": numerics.get("matmul"),
    }


def _ladder_rows(store: Store, study: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The runs of every size. The loss of one that diverged or is absent is null."""
    for size in study.get("ladder", ()):
        for arm in size["arms"]:
            per_token = arm["flops_per_token"]
            for run in arm["runs"]:
                result = store.read_result(run["digest"]) or {}
                speed = result.get("tokens_per_second", {}).get("median")
                yield {
                    "size": size["name"],
                    "arm": arm["name"],
                    "seed": run["seed"],
                    "digest": run["digest"],
                    "parameters": arm["parameters"],
                    "flops": arm["tokens"] * per_token,
                    "loss": result.get("loss"),
                    "flops_per_second": None if speed is None else speed * per_token,
                }


def _environment(store: Store, digest: str) -> dict[str, Any]:
    result = store.read_result(digest) or {}
    return dict(result.get("environment", {}))


def _curve(store: Store, key: dict[str, Any]) -> pl.DataFrame:
    return _keyed(store.read_metrics(key["digest"]), key, CURVES)


def _probes(store: Store, key: dict[str, Any]) -> pl.DataFrame:
    """Of a run that has ended: one that is under way has not seen its end."""
    ended = store.status(key["digest"]) in ("finished", "diverged")
    return _keyed(store.read_probes(key["digest"]), key, PROBES) if ended else pl.DataFrame(schema=PROBES)


def _keyed(frame: pl.DataFrame, key: dict[str, Any], schema: dict[str, Any]) -> pl.DataFrame:
    return frame.with_columns(pl.lit(value, dtype=KEYS[name]).alias(name) for name, value in key.items()).select(
        pl.col(name).cast(kind) for name, kind in schema.items()
    )


def _measure_rows(store: Store, study: dict[str, Any], keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if study.get("measure") is None:
        return []
    return [
        key | {"kind": kind, **{name: point.get(name) for name in ("context", "batch", "reason")}, **values}
        for key in keys
        for kind, point, values in _points(store.read_measure(key["digest"], study["measure"]) or {})
    ]


def _points(
    document: dict[str, Any],
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """A point that did not fit in memory has a reason, and none of the numbers."""
    for point in document.get("cache", ()):
        yield "cache", point, {k: point.get(k) for k in ("declared_bytes", "allocated_bytes")}
    for kind in ("prefill", "decode"):
        for point in document.get(kind, ()):
            yield kind, point, dict(point.get("tokens_per_second", {}))


def _eval_rows(store: Store, study: dict[str, Any], keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if study.get("evals") is None:
        return []
    return [
        key | {"task": task, "metric": metric, **score}
        for key in keys
        for task, metrics in (store.read_evals(key["digest"], study["evals"]) or {}).get("tasks", {}).items()
        for metric, score in metrics.items()
    ]


def _position_rows(store: Store, study: dict[str, Any], keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per bucket of positions. Windows that could not be read are one row, with the reason."""
    if study.get("evals") is None:
        return []
    found = ((key, (store.read_evals(key["digest"], study["evals"]) or {}).get("positions", {})) for key in keys)
    return [
        key | {"multiple": window["multiple"], "context": document["context"], "reason": window.get("reason")} | bucket
        for key, document in found
        for window in document.get("windows", ())
        for bucket in (
            [{name: each[name] for name in POSITIONS if name in each} for each in window.get("buckets", ())] or [{}]
        )
    ]


def _diagnostic_rows(store: Store, study: dict[str, Any], keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per difficulty. One that could not be asked has a reason, and no accuracy."""
    if study.get("evals") is None:
        return []
    found = ((key, (store.read_evals(key["digest"], study["evals"]) or {}).get("diagnostics")) for key in keys)
    return [
        key
        | {"task": document["task"], "level": json.dumps(row["level"], sort_keys=True)}
        | {name: row.get(name) for name in ("length", "reason", "chance")}
        | {"accuracy": row.get("accuracy", {}).get("value"), "stderr": row.get("accuracy", {}).get("stderr")}
        for key, document in found
        if document
        for row in document["levels"]
    ]


def _sample_rows(store: Store, study: dict[str, Any], keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if study.get("evals") is None:
        return []
    return [
        key | row
        for key in keys
        for sample in store.read_samples(key["digest"], study["evals"]) or ()
        for row in _sample_values(sample)
    ]


def _sample_values(sample: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What one item says of each metric that is a sum over items. Named as in the evals document."""
    item = f"{sample['doc_id']} {sample['doc_hash']}"
    document = sample.get("document")
    shared = {"task": sample["task"], "item": item, "cluster": item if document is None else f"document {document}"}
    for metric in sample.keys() - set(NOT_METRICS) - set(PERPLEXITIES):
        name = metric if sample["filter"] == "none" else f"{metric},{sample['filter']}"
        value, weight = _value_and_weight(metric, sample[metric])
        yield shared | {"metric": name, "value": value, "weight": weight}


def _value_and_weight(metric: str, score: Any) -> tuple[float | None, float | None]:
    """None for what is not a number. A likelihood of a whole text is its log and its bytes."""
    if metric == "bits_per_byte" and isinstance(score, list) and None not in score:
        return -score[0] / NATS_PER_BIT, score[1]
    return (float(score), 1.0) if isinstance(score, int | float) else (None, None)
