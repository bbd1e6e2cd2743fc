"""Read what a study's runs left in the store into frames. Absent runs are rows too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from ablate.store import AblateError, Store, StudyFolder
from ablate.store.documents import (
    Environment,
    LossThroughCache,
    Measured,
    MeasureDocument,
    MeasuredPoint,
    Quartiles,
    ResultDocument,
    Section,
    SpeedPoint,
    StudyDocument,
)
from reports.reading import evaluations
from reports.reading.keys import KEYS, Row, RunKey, Schema, keys_of

RUNS: Schema = KEYS | {
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
OF_RESULT = tuple(
    name
    for name in RUNS
    if name in ResultDocument.model_fields and name not in (*KEYS, "tokens_per_second", "grad_norm")
)
"""Columns that are fields of a result as they are."""
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

    study: StudyDocument
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
    environments: dict[str, Environment]

    @cached_property
    def curve_of(self) -> dict[tuple[object, ...], pl.DataFrame]:
        """The curve of each run by (arm, digest): two arms may share a run."""
        return self.curves.partition_by("arm", "digest", as_dict=True)


def collect(study_dir: Path | str) -> Collected:
    """Read a study's folder and the runs it names. Raises ReportError without a study there."""
    study = StudyFolder(Path(study_dir)).read()
    if study is None:
        raise ReportError(f"{study_dir} holds no study.json")
    store, keys = Store.of_study(study_dir), keys_of(study)
    evaluated = list(evaluations.read(store, study, keys))
    measured = list(_measured(store, study, keys))
    results = {key.digest: store.read_result(key.digest) for key in keys}
    return Collected(
        study=study,
        runs=pl.DataFrame([_run_row(store, key, results[key.digest]) for key in keys], schema=RUNS),
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
        probes=pl.concat([pl.DataFrame(schema=PROBES), *(_probes(store, key) for key in keys if results[key.digest])]),
        closeups=evaluations.closeups(study, evaluated),
        environments={digest: result.environment for digest, result in results.items() if result},
    )


def _run_row(store: Store, key: RunKey, result: ResultDocument | None) -> Row:
    run = store.read_run(key.digest)
    known = {name: getattr(result, name) for name in OF_RESULT} if result else {}
    if result:
        speed, norm = result.tokens_per_second.median, result.grad_norm
        known |= {"tokens_per_second": speed, "grad_norm": norm.median, "grad_norm_spikes": norm.spikes}
    else:
        known["status"] = "absent" if run is None else "partial"
    if run:
        known |= {"data": run.data.digest, "dtype": run.numerics.dtype, "matmul": run.numerics.matmul}
    return key.row(known)


def _ladder_rows(store: Store, study: StudyDocument) -> Iterator[Row]:
    """The runs of every size. The loss of one that diverged or is absent is null."""
    for size in study.ladder:
        for arm in size.arms:
            for run in arm.runs:
                result = store.read_result(run.digest)
                speed = result.tokens_per_second.median if result else None
                yield {
                    "size": size.name,
                    **RunKey(arm.name, run.seed, run.digest)._asdict(),
                    "parameters": arm.parameters,
                    "flops": arm.flops,
                    "loss": result.loss if result else None,
                    "flops_per_second": None if speed is None else speed * arm.flops_per_token,
                }


def _curve(store: Store, key: RunKey) -> pl.DataFrame:
    return _keyed(store.read_metrics(key.digest, [name for name in CURVES if name not in KEYS]), key, CURVES)


def _probes(store: Store, key: RunKey) -> pl.DataFrame:
    """Of a run that has ended: one that is under way has not seen its end."""
    return _keyed(store.read_probes(key.digest), key, PROBES)


def _keyed(frame: pl.DataFrame, key: RunKey, schema: Schema) -> pl.DataFrame:
    known = key._asdict()
    return frame.select(
        pl.repeat(known[name], pl.len(), dtype=kind).alias(name) if name in known else pl.col(name).cast(kind)
        for name, kind in schema.items()
    )


def _measured(store: Store, study: StudyDocument, keys: list[RunKey]) -> Iterator[tuple[RunKey, MeasureDocument]]:
    """The measurement of each run that has one."""
    if study.measure is None:
        return
    for key in keys:
        if (found := store.read_measure(key.digest, study.measure)) is not None:
            yield key, found


def _measure_rows(key: RunKey, found: Measured) -> Iterator[Row]:
    for kind, point, values in _points(found):
        yield key.row({"kind": kind, "context": point.context, "batch": point.batch, "reason": point.reason, **values})


def _cache_rows(key: RunKey, found: MeasureDocument) -> Iterator[Row]:
    kinds: dict[str, Measured] = {PLAIN: found, **found.caches} if found.caches else {}
    for cache, measured in kinds.items():
        for row in _measure_rows(key, measured):
            yield {**row, "cache": cache}


def _cache_loss_rows(key: RunKey, found: MeasureDocument) -> Iterator[Row]:
    losses = found.cache_loss
    if losses is None:
        return
    for cache, loss in (losses.kinds or {PLAIN: LossThroughCache(reason=losses.reason)}).items():
        yield key.row(
            {
                "cache": cache,
                "length": losses.length,
                "reason": loss.reason,
                "nats_per_token": loss.nats_per_token.value if loss.nats_per_token else None,
                "added": loss.added.value if loss.added else None,
                "stderr": loss.added.stderr if loss.added else None,
            }
        )


def _points(found: Measured) -> Iterator[tuple[str, MeasuredPoint, Row]]:
    """A point that did not fit in memory has a reason, and none of the numbers."""
    for cache in found.cache:
        yield "cache", cache, {"declared_bytes": cache.declared_bytes, "allocated_bytes": cache.allocated_bytes}
    for prefill in found.prefill:
        read = {"seconds": _median(prefill.seconds_to_first_token), "seconds_to_read": _median(prefill.seconds_to_read)}
        yield "prefill", prefill, {**_speed(prefill), **read}
    for decode in found.decode:
        seconds, utilisation = decode.seconds_per_output_token, decode.bandwidth_utilisation
        written = {"seconds": _median(seconds), "bandwidth_utilisation": _median(utilisation)}
        yield "decode", decode, {**_speed(decode), **written}


def _speed(point: SpeedPoint) -> Row:
    rate = point.tokens_per_second.model_dump() if point.tokens_per_second else {}
    return {**rate, "peak_memory_bytes": point.peak_memory_bytes}


def _median(quartiles: Quartiles | None) -> float | None:
    return None if quartiles is None else quartiles.median
