"""How often models are right, by how sure they are, averaged over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import polars as pl

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected, Curve, over_seeds
from reports.judge.reading.evaluations import Schema
from reports.page.evaluations import EvaluationSection
from reports.page.figures.base import Figure, band, line, mean_and_range
from reports.page.figures.drawing import ArmStyle, blank
from reports.page.wording.table import frame_table


@dataclass(frozen=True)
class Confidence(EvaluationSection):
    """One curve for each evaluated arm."""

    schema: ClassVar[Schema] = {"range": pl.Int64, "confidence": pl.Float64, "accuracy": pl.Float64}

    curves: tuple[Curve, ...]

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        rows = data.frames[cls.name()].drop_nulls("range").sort("range")
        curves = []
        for (arm,), of_arm in rows.group_by("arm", maintain_order=True):
            ranges = [found for _, found in of_arm.group_by("range", maintain_order=True)]
            points = (over_seeds(found["confidence"].mean(), found["accuracy"].to_list()) for found in ranges)
            curves.append(Curve(str(arm), "accuracy", tuple(points)))
        return cls(tuple(curves)) if curves else None

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        figure = blank("confidence in the likeliest token", "how often it is right")
        for curve in self.curves:
            band(figure, style[curve.arm], curve, 1.0, 0.16)
            line(figure, style[curve.arm], curve)
        rows = [(c.arm, f"{p.x:.3f}", *mean_and_range(p)) for c in self.curves for p in c.points]
        yield Figure(
            key="confidence",
            title="Accuracy by confidence",
            note="A calibrated model is on the diagonal. Bands: range over seeds.",
            alt="; ".join(f"{arm} at {sure}: {mean}" for arm, sure, mean, *_ in rows),
            drawing=figure,
            table=frame_table(("arm", "confidence", "accuracy", "lowest seed", "highest seed"), rows),
        )
