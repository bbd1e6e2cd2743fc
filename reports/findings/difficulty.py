"""Accuracy by difficulty, averaged over seeds. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from reports.findings.curves import Curve, Point
from reports.reading.collect import Collected
from reports.statistics.estimates import combined_stderr


@dataclass(frozen=True)
class Rung:
    """One value of a difficulty. `accuracy` is over seeds, `stderr` covers examples and seeds."""

    accuracy: Point
    stderr: float | None
    chance: float | None


@dataclass(frozen=True)
class AccuracyCurve:
    """One arm on a task, against one of its difficulties; other difficulties are averaged over.

    `reasons` say why values are missing.
    """

    arm: str
    task: str
    difficulty: str
    rungs: tuple[Rung, ...]
    reasons: tuple[str, ...]

    @property
    def curve(self) -> Curve:
        return Curve(self.arm, "accuracy", tuple(rung.accuracy for rung in self.rungs))


def accuracy_curves(data: Collected) -> tuple[AccuracyCurve, ...]:
    """For every arm, one curve for each difficulty that has several values; one curve where none has."""
    rows = data.diagnostics
    if rows.is_empty():
        return ()
    levels = [json.loads(level) for level in rows["level"].unique()]
    names = sorted({name for level in levels for name in level})
    varied = [name for name in names if len({level[name] for level in levels}) > 1]
    arms = [arm.name for arm in data.study.arms]
    return tuple(
        _curve(arm, name, own) for name in varied or names[:1] for arm in arms if (own := rows.filter(arm=arm)).height
    )


def _curve(arm: str, name: str, rows: pl.DataFrame) -> AccuracyCurve:
    at = pl.col("level").map_elements(lambda level: json.loads(level)[name], return_dtype=pl.Int64)
    found = rows.with_columns(at.alias("at")).sort("at")
    return AccuracyCurve(
        arm=arm,
        task=found["task"][0],
        difficulty=name,
        rungs=tuple(_rungs(found.drop_nulls("accuracy"))),
        reasons=tuple(found["reason"].drop_nulls().unique(maintain_order=True)),
    )


def _rungs(rows: pl.DataFrame) -> Iterator[Rung]:
    for (value,), here in rows.group_by("at", maintain_order=True):
        seeds = here.group_by("seed", maintain_order=True).agg(
            pl.col("accuracy").mean(), stderr=(pl.col("stderr") ** 2).sum().sqrt() / pl.len()
        )
        scores = seeds["accuracy"].to_list()
        chance = here["chance"]
        yield Rung(
            accuracy=Point(int(str(value)), sum(scores) / len(scores), min(scores), max(scores), len(scores)),
            stderr=combined_stderr(seeds["stderr"].to_list(), scores),
            chance=None if chance.null_count() else float(str(chance.mean())),
        )
