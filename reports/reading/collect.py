"""Read what a study's runs left in the store into frames. Absent runs are rows too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from ablate.store import AblateError, Store, read_json
from ablate.store.documents import Section
from reports.reading import evaluations
from reports.reading.evaluations import KEYS

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
    "seconds": pl.Float64,
    "seconds_to_read": pl.Float64,
    "bandwidth_utilisation": pl.Float64,
    "peak_memory_bytes": pl.Float64,
    "declared_bytes": pl.Float64,
    "allocated_bytes": pl.Float64,
}
CACHES = MEASURES | {"cache": pl.String}
"""The same of every kind of cache, plain among them, where others were measured."""
CACHE_LOSSES = KEYS | {
    "cache": pl.String,
    "length": pl.Int64,
    "reason": pl.String,
    "nats_per_token": pl.Float64,
    "added": pl.Float64,
    "stderr": pl.Float64,
}
"""`added` is to the loss through a plain cache, and `stderr` that of it."""
LADDER = KEYS | {
    "size": pl.String,
    "parameters": pl.Int64,
    "flops": pl.Float64,
    "loss": pl.Float64,
    "flops_per_second": pl.Float64,
}

PROBES = KEYS | {
    "step": pl.Int64,
    "probe": pl.String,
    "layer": pl.Int64,
    "name": pl.String,
    "value": pl.Float64,
}

PLAIN = "plain"
"""The kind of cache that others are compared with."""


class ReportError(AblateError):
    """The study cannot be reported: it is missing, or its runs must not be compared."""


@dataclass(frozen=True)
class Collected:
    """A study and its runs. `environments` maps a run's digest to what it ran on."""

    study: dict[str, Any]
    runs: pl.DataFrame
    curves: pl.DataFrame
    measures: pl.DataFrame
    caches: pl.DataFrame
    cache_losses: pl.DataFrame
    evals: pl.DataFrame
    positions: pl.DataFrame
    recall: pl.DataFrame
    diagnostics: pl.DataFrame
    ladder: pl.DataFrame
    samples: pl.DataFrame
    skipped: pl.DataFrame
    grouped: frozenset[str]
    probes: pl.DataFrame
    closeups: dict[str, dict[int, dict[str, Section]]]
    """What there is to be looked at: sections of the evals documents by arm, seed and name."""
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
    evaluated = list(evaluations.read(store, study, keys))
    measured = list(_measured(store, study, keys))
    return Collected(
        study=study,
        runs=pl.DataFrame([_run_row(store, key) for key in keys], schema=RUNS),
        curves=pl.concat([pl.DataFrame(schema=CURVES), *(_curve(store, key) for key in keys)]),
        measures=pl.DataFrame([row for key, found in measured for row in _measure_rows(key, found)], schema=MEASURES),
        caches=pl.DataFrame([row for key, found in measured for row in _cache_rows(key, found)], schema=CACHES),
        cache_losses=pl.DataFrame(
            [row for key, found in measured for row in _cache_loss_rows(key, found)], schema=CACHE_LOSSES
        ),
        evals=evaluations.scores(evaluated),
        positions=evaluations.positions(evaluated),
        recall=evaluations.recall(evaluated),
        diagnostics=evaluations.diagnostics(evaluated),
        ladder=pl.DataFrame(list(_ladder_rows(store, study)), schema=LADDER),
        samples=evaluations.samples(evaluated),
        skipped=evaluations.skipped(evaluated),
        grouped=evaluations.grouped(evaluated),
        probes=pl.concat([pl.DataFrame(schema=PROBES), *(_probes(store, key) for key in keys)]),
        closeups=evaluations.closeups(study, evaluated),
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
    return _keyed(store.read_metrics(key["digest"], [name for name in CURVES if name not in KEYS]), key, CURVES)


def _probes(store: Store, key: dict[str, Any]) -> pl.DataFrame:
    """Of a run that has ended: one that is under way has not seen its end."""
    ended = store.status(key["digest"]) in ("finished", "diverged")
    return _keyed(store.read_probes(key["digest"]), key, PROBES) if ended else pl.DataFrame(schema=PROBES)


def _keyed(frame: pl.DataFrame, key: dict[str, Any], schema: dict[str, Any]) -> pl.DataFrame:
    return frame.select(
        pl.repeat(key[name], pl.len(), dtype=kind).alias(name) if name in key else pl.col(name).cast(kind)
        for name, kind in schema.items()
    )


def _measured(
    store: Store, study: dict[str, Any], keys: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The measure document of each run that has one."""
    if study.get("measure") is None:
        return
    for key in keys:
        if (document := store.read_measure(key["digest"], study["measure"])) is not None:
            yield key, document


def _measure_rows(key: dict[str, Any], document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for kind, point, values in _points(document):
        yield key | {"kind": kind, **{name: point.get(name) for name in ("context", "batch", "reason")}, **values}


def _cache_rows(key: dict[str, Any], document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if document.get("caches"):
        for cache, points in {PLAIN: document, **document["caches"]}.items():
            for row in _measure_rows(key, points):
                yield row | {"cache": cache}


def _cache_loss_rows(key: dict[str, Any], document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    found = document.get("cache_loss", {})
    for cache, loss in found.get("kinds", {PLAIN: found} if found else {}).items():
        added = loss.get("added", {})
        yield key | {
            "cache": cache,
            "length": found["length"],
            "reason": loss.get("reason"),
            "nats_per_token": loss.get("nats_per_token", {}).get("value"),
            "added": added.get("value"),
            "stderr": added.get("stderr"),
        }


def _points(
    document: dict[str, Any],
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """A point that did not fit in memory has a reason, and none of the numbers. Older documents have speeds alone."""
    for point in document.get("cache", ()):
        yield "cache", point, {k: point.get(k) for k in ("declared_bytes", "allocated_bytes")}
    for kind in ("prefill", "decode"):
        for point in document.get(kind, ()):
            yield kind, point, dict(point.get("tokens_per_second", {})) | _serving(point)


def _serving(point: dict[str, Any]) -> dict[str, Any]:
    """Medians. `seconds` are those that each row waits: for its first token, or for one more; `seconds_to_read` those
    of an encoder, which writes none."""
    waited = point.get("seconds_to_first_token") or point.get("seconds_per_output_token") or {}
    return {
        "seconds": waited.get("median"),
        "seconds_to_read": point.get("seconds_to_read", {}).get("median"),
        "bandwidth_utilisation": point.get("bandwidth_utilisation", {}).get("median"),
        "peak_memory_bytes": point.get("peak_memory_bytes"),
    }
