"""Losses in one unit: nats per token (per target, if not all tokens are targets), or nats per byte of held-out text if
arms have different tokenizers. Nothing else converts losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from reports.judge.reading.collected import Collected
from store.documents import StudyDocument
from store.result_columns import LOSSES


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
