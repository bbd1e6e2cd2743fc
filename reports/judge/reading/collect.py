"""Read a study's stored runs into frames, and convert their losses to one unit.

The unit is nats per token (per target, if not all tokens are targets), or nats per byte of held-out text if arms have
different tokenizers. Nothing else converts losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

from reports.judge.noise.moderated import noise_of_studies
from reports.judge.reading import evaluations
from reports.judge.reading.collected import Collected, SectionReader
from reports.judge.reading.documents import Inputs, StudyDocuments
from reports.judge.reading.evaluations import KEYS, RunKey
from reports.judge.reading.outcomes import outcomes
from store import Store
from store.documents import Environment, GpuState, Part, StudyDocument
from store.documents.measure import CROWDED
from store.store import Likeness, like_tables, shared_runs
from store.tables import LOSSES, RESULT, Schema

# Runs of every rung of a ladder, as one frame.

RUNGS = KEYS | {
    "rung": pl.String,
    "axis": pl.String,
    "status": pl.String,
    "parameters": pl.Int64,
    "flops": pl.Float64,
    "loss": pl.Float64,
    "accuracy": pl.Float64,
    "chance": pl.Float64,
}


def rung_runs(documents: StudyDocuments) -> pl.DataFrame:
    """A row per run of every rung. The loss of an absent run is null, as is the loss of one that diverged without a
    finite loss."""
    rows = []
    for rung in documents.study.ladder:
        keys = [(arm, RunKey(arm.name, run.seed, run.digest)) for arm in rung.arms for run in arm.runs]
        results = {key.digest: documents.store.read_result(key.digest) for _, key in keys}
        known = outcomes(documents.study, rung.arms, results, documents.corpora, documents.validations)
        for arm, key in keys:
            result = results[key.digest]
            rows.append(
                {
                    "rung": rung.name,
                    "axis": rung.axis,
                    **key._asdict(),
                    "status": known.get(key.digest, {}).get("status", documents.store.status(key.digest)),
                    "parameters": arm.parameters,
                    "flops": arm.flops,
                    "loss": result.loss if result else None,
                    "accuracy": result.accuracy if result else None,
                    "chance": documents.chances.get(arm.data),
                }
            )
    return pl.DataFrame(rows, schema=RUNGS)


RUNS: Schema = (
    KEYS
    | RESULT
    | dict.fromkeys(("uniform", "chance", "decode_tokens_per_second"), pl.Float64())
    | dict.fromkeys(("data", "dtype", "matmul"), pl.String())
)
"""A run's result. `uniform`: loss of guessing uniformly over the vocabulary; `chance`: accuracy of guessing in a
synthetic task; `decode_tokens_per_second`: decoding speed at the longest context and smallest batch measured, null if
other work used the machine."""
CURVES = KEYS | {
    "step": pl.Int64,
    "tokens": pl.Int64,
    "seconds": pl.Float64,
    "loss": pl.Float64,
    "validation_loss": pl.Float64,
    "accuracy": pl.Float64,
}

ITEM_LOSSES = KEYS | {"item": pl.Int64, "nats": pl.Float64, "weight": pl.Float64}
"""A loss is Σ nats / Σ weight over the held-out documents, or over a task's examples."""
OVERRULED = ("status", "reason")
"""Columns of a result that the outcome relative to the other runs may override."""
AnyPart = TypeVar("AnyPart", bound=Part)
Sections = Sequence[type[SectionReader]]
ReadMany = Callable[[Collection[str]], tuple[pl.DataFrame, list[int]]]
"""Columns → the concatenated records of all runs, and each run's number of records."""


def collect(study_dir: Path | str, store: Store | None = None, sections: Sections = ()) -> Collected:
    """Read a study's folder and its runs, and what these sections need. Raises ReportError if there is no study."""
    return collected(StudyDocuments.of(study_dir, store), sections)


def collected(documents: StudyDocuments, sections: Sections = ()) -> Collected:
    """Frames built from a study's documents."""
    store, keys, study = documents.store, documents.keys, documents.study
    base = study.baseline_arm
    like = Likeness(base.length.parameters, base.steps, frozenset(arm.data for arm in study.arms))
    per = "bytes" if documents.study.per == "byte" else "targets"
    return Collected(
        study=documents.study,
        runs=_runs(documents),
        curves=_logged(documents.tables.metrics, keys, CURVES),
        scores=evaluations.scores(documents.evaluated),
        items=evaluations.items(documents.evaluated),
        grouped=evaluations.grouped(documents.evaluated),
        environments=_parsed(documents, "environment", Environment),
        # By document; weighted by bytes if arms have different tokenizers.
        losses=_logged(documents.tables.losses, keys, ITEM_LOSSES, {"weight": per}),
        rungs=rung_runs(documents),
        gpus=_parsed(documents, "gpu", GpuState),
        ledger=store.read_ledger(documents.study.name),
        elsewhere=tuple(store.read_ledger(other) for other in store.ledgers() if other != documents.study.name),
        inputs=Inputs.of(documents),
        references=documents.references,
        store_option=store.option,
        costs=documents.costs,
        shared=shared_runs(store, study),
        history=noise_of_studies(like_tables(store, like, study.run_digests)),
        ahead=noise_of_studies(like_tables(store, like, ())),
        began=documents.began,
        frames={name: frame for each in sections for name, frame in each.collect(documents).items()},
        loss_columns={name: columns for each in sections for name, columns in each.losses().items()},
    )


def _runs(documents: StudyDocuments) -> pl.DataFrame:
    """One row per run: its stored result, overridden by its outcome among the other runs."""
    found = pl.DataFrame(documents.keys, schema=KEYS, orient="row").hstack(documents.tables.results)
    known = [documents.outcomes.get(key.digest, {}) for key in documents.keys]
    speeds = {}
    for digest, each in documents.measurements.items():
        longest = each.longest_decoding
        if longest is not None and longest.tokens_per_second is not None and (each.waiting or 0.0) < CROWDED:
            speeds[digest] = longest.tokens_per_second.median
    return found.with_columns(
        *(pl.Series(name, [row.get(name) for row in known], RUNS[name]).fill_null(found[name]) for name in OVERRULED),
        pl.Series("uniform", [row.get("uniform") for row in known], pl.Float64),
        chance=pl.col("data").replace_strict(documents.chances, default=None, return_dtype=pl.Float64),
        decode_tokens_per_second=pl.col("digest").replace_strict(speeds, default=None, return_dtype=pl.Float64),
    ).select(*RUNS)


def _parsed(documents: StudyDocuments, column: str, model: type[AnyPart]) -> dict[str, AnyPart]:
    """Parse a column of JSON documents, keyed by run digest. Thousands of runs share a few documents; each is parsed
    once."""
    parse = cache(model.model_validate_json)
    known = zip(documents.keys, documents.tables.results[column].to_list(), strict=True)
    return {key.digest: parse(text) for key, text in known if text is not None}


def _logged(
    read: ReadMany, keys: Sequence[RunKey], schema: Schema, names: Mapping[str, str] | None = None
) -> pl.DataFrame:
    """Concatenated logs of all runs, each record keyed by its run. names: stored names, for columns that differ."""
    if not keys:
        return pl.DataFrame(schema=schema)
    known = names or {}
    columns = {name: known.get(name, name) for name in schema if name not in KEYS}
    logged, counts = read(list(columns.values()))
    run_of_each = np.repeat(np.arange(len(keys)), counts)
    keyed = pl.DataFrame(keys, schema=KEYS, orient="row")[run_of_each]
    renamed = logged.rename({stored: name for name, stored in columns.items()})
    return pl.concat([keyed, renamed], how="horizontal").cast(pl.Schema(schema))


def comparable(data: Collected) -> Collected:
    """The same data, with losses per byte if the study compares those.

    nats per byte = nats per token · held-out tokens / held-out bytes = bits per byte · ln 2. The factor depends only on
    the tokenizer, so an arm's runs share it. Training losses are scaled by it too, although they are of other text.
    """
    if data.study.per != "byte":
        return data
    ended = data.runs.drop_nulls(["bits_per_byte", "loss"])
    factor = (pl.col("bits_per_byte") * math.log(2) / pl.col("loss")).mean()
    factors = ended.group_by("arm").agg(factor.alias("factor"))
    losses = pl.col("task").is_in(list(data.loss_columns))  # of evaluations whose scores are losses
    return replace(
        data,
        study=_tuned_per_byte(data.study, dict(factors.rows())),
        references={arm: each.per_byte() for arm, each in data.references.items()},
        runs=_scaled(data.runs, (*LOSSES, "uniform"), factors),
        curves=_scaled(data.curves, ("loss", "validation_loss"), factors),
        scores=_scaled(data.scores, ("value", "stderr"), factors, losses),
        items=_scaled(data.items, ("value",), factors, losses),
        rungs=_scaled(data.rungs, ("loss",), factors),
        frames={name: _scaled(frame, data.loss_columns.get(name, ()), factors) for name, frame in data.frames.items()},
    )


def judging(data: Collected) -> Collected:
    """The same data with final validation scores in place of the test scores."""
    columns = {name: pl.col(f"judging_{name}") for name in ("loss", "bits_per_byte", "accuracy")}
    return replace(data, runs=data.runs.with_columns(**columns))


def _tuned_per_byte(study: StudyDocument, factors: Mapping[str, float | None]) -> StudyDocument:
    """The study with tuning losses per byte. A ladder's rungs keep theirs, which are compared with nothing."""
    tuning = []
    for each in study.tuning:
        factor, trials = factors.get(each.arm), []
        for trial in each.trials:
            losses = tuple(None if loss is None or factor is None else factor * loss for loss in trial.losses)
            trials.append(trial.model_copy(update={"losses": losses}))
        tuning.append(each.model_copy(update={"trials": tuple(trials)}))
    return study.model_copy(update={"tuning": tuple(tuning)})


def _scaled(
    frame: pl.DataFrame, columns: Sequence[str], factors: pl.DataFrame, where: pl.Expr | None = None
) -> pl.DataFrame:
    """Multiply columns by the arm's factor, in all rows or in those selected by `where`."""
    if not columns:
        return frame
    joined = frame.join(factors, on="arm", how="left", maintain_order="left")
    scaled = (pl.col(name) * pl.col("factor") for name in columns)
    if where is not None:
        scaled = (
            pl.when(where).then(value).otherwise(pl.col(name)) for name, value in zip(columns, scaled, strict=True)
        )
    return joined.with_columns(value.alias(name) for name, value in zip(columns, scaled, strict=True)).drop("factor")
