"""Accuracy on synthetic tasks, by difficulty, averaged over seeds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import polars as pl

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected, Curve, CurvePoint, over_seeds
from reports.judge.statistics.estimates import combined_stderr
from reports.page.evaluations import EvaluationSection
from reports.page.figures.base import NEUTRAL, Figure, band, line, mean_and_range, optional, short
from reports.page.figures.drawing import ArmStyle, blank, label
from reports.page.wording import words
from reports.page.wording.table import frame_table
from store.documents import JsonObject, JsonScalar
from store.tables import Row, Schema

COLUMNS = ("arm", "accuracy", "lowest seed", "highest seed", "standard error", "chance")


@dataclass(frozen=True)
class Rung:
    """Accuracy at one value of a difficulty. `accuracy` is over seeds; `stderr` covers examples and seeds."""

    accuracy: CurvePoint
    stderr: float | None
    chance: float | None


@dataclass(frozen=True)
class AccuracyCurve:
    """One arm on a task, against one of its difficulties, averaged over the others.

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


@dataclass(frozen=True)
class Diagnostics(EvaluationSection):
    """Accuracy curves: for each arm, one per difficulty that has several values, or a single curve if none has."""

    place: ClassVar[int] = 85
    schema: ClassVar[Schema] = {
        "task": pl.String,
        "level": pl.String,
        "length": pl.Int64,
        "reason": pl.String,
        "accuracy": pl.Float64,
        "stderr": pl.Float64,
        "chance": pl.Float64,
    }
    """`level` is JSON: the value of each difficulty by name."""

    curves: tuple[AccuracyCurve, ...]

    @classmethod
    def row(cls, about: Mapping[str, JsonScalar], row: JsonObject) -> Row:
        return {**super().row(about, row), "level": json.dumps(row["level"], sort_keys=True)}

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        rows = data.frames[cls.name()]
        levels = [json.loads(level) for level in rows["level"].unique()]
        names = sorted({name for level in levels for name in level})
        varied = [name for name in names if len({level[name] for level in levels}) > 1]
        curves = tuple(
            _curve(arm.name, name, own)
            for name in varied or names[:1]
            for arm in data.study.arms
            if (own := rows.filter(arm=arm.name)).height
        )
        return cls(curves) if curves else None

    @classmethod
    def missed(cls, about: Mapping[str, JsonScalar], row: JsonObject) -> tuple[str, str]:
        level = row["level"] if isinstance(row["level"], dict) else {}
        return str(about["task"]), f"accuracy ({', '.join(f'{name} {value}' for name, value in level.items())})"

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """One figure per difficulty, one line per arm."""
        for name, found in itertools.groupby(self.curves, key=lambda curve: curve.difficulty):
            yield figure_of(name, [curve for curve in found if curve.rungs], style)


def _curve(arm: str, name: str, rows: pl.DataFrame) -> AccuracyCurve:
    at = pl.col("level").map_elements(lambda level: json.loads(level)[name], return_dtype=pl.Int64)
    found = rows.with_columns(at.alias("at")).sort("at")
    rungs = []
    for (value,), here in found.drop_nulls("accuracy").group_by("at", maintain_order=True):
        seeds = here.group_by("seed", maintain_order=True).agg(
            pl.col("accuracy").mean(), stderr=(pl.col("stderr") ** 2).sum().sqrt() / pl.len()
        )
        scores, chance = seeds["accuracy"].to_list(), here["chance"]
        rungs.append(
            Rung(
                accuracy=over_seeds(int(str(value)), scores),
                stderr=combined_stderr(seeds["stderr"].to_list(), scores),
                chance=None if chance.null_count() else float(str(chance.mean())),
            )
        )
    return AccuracyCurve(
        arm=arm,
        task=found["task"][0],
        difficulty=name,
        rungs=tuple(rungs),
        reasons=tuple(found["reason"].drop_nulls().unique(maintain_order=True)),
    )


def figure_of(name: str, found: Sequence[AccuracyCurve], style: Mapping[str, ArmStyle]) -> Figure:
    figure = blank(label(name.replace("_", " ")), "accuracy")
    for curve in found:
        band(figure, style[curve.arm], curve.curve, 1.0, 0.16)
        line(figure, style[curve.arm], curve.curve)
    chances = {rung.accuracy.x: rung.chance for curve in found for rung in curve.rungs if rung.chance is not None}
    figure.add_scatter(
        x=sorted(chances),
        y=[short(chances[x]) for x in sorted(chances)],
        mode="lines" if len(chances) > 1 else "markers",  # a line through one point is invisible
        name="chance",
        line=NEUTRAL,
        marker={"symbol": "line-ew-open", "size": 24, "color": NEUTRAL["color"]},
        hovertemplate="chance: %{y:.3f}<extra></extra>",
    )
    values = sorted({rung.accuracy.x for curve in found for rung in curve.rungs})
    logarithmic = len(values) > 2 and values[0] > 0 and values[-1] / values[0] >= 8
    figure.update_xaxes(
        type="log" if logarithmic else "linear",
        tickmode="array",
        tickvals=values,
        ticktext=[words.whole(value) for value in values],
    )
    figure.update_yaxes(range=[-0.03, 1.03])
    reasons = dict.fromkeys(f" {curve.arm}: {reason}." for curve in found for reason in curve.reasons)
    marked = f" {'Dotted' if len(chances) > 1 else 'Grey'}: chance." if chances else ""  # a language has none
    return Figure(
        key=f"accuracy-{name}",
        title=f"Accuracy by {name.replace('_', ' ')}",
        note="Share of targets that are the model's likeliest token, on held-out examples that are the same in all"
        f" arms. Bands: range over seeds.{marked}{''.join(reasons)}",
        alt="; ".join(
            f"{curve.arm} at {words.whole(rung.accuracy.x)}: {rung.accuracy.mean:.3f}"
            for curve in found
            for rung in curve.rungs
        ),
        drawing=figure,
        table=frame_table(
            (COLUMNS[0], name, *COLUMNS[1:]),
            [
                (
                    curve.arm,
                    words.whole(rung.accuracy.x),
                    *mean_and_range(rung.accuracy),
                    optional(rung.stderr),
                    optional(rung.chance),
                )
                for curve in found
                for rung in curve.rungs
            ],
            2,
        ),
    )
