"""Accuracy on a synthetic task over training; such tasks are often learnt abruptly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected, Curve, mean_curve
from reports.page.figures.base import Figure, band, ends, line, mean_and_range, thinned
from reports.page.figures.drawing import ArmStyle, blank
from reports.page.sections import Section
from reports.page.wording import words
from reports.page.wording.table import frame_table


@dataclass(frozen=True)
class TrainingAccuracy(Section):
    """Validation accuracy against step, per arm; text has none."""

    place: ClassVar[int] = 11

    curves: tuple[Curve, ...]

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        found = (Curve(arm.name, "accuracy", mean_curve(data, arm.name, "accuracy")) for arm in data.study.arms)
        curves = tuple(curve for curve in found if curve.points)
        return cls(curves) if curves else None

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        figure = blank("training step", "accuracy")
        for curve in self.curves:
            band(figure, style[curve.arm], curve, 1.0, 0.16)
            line(figure, style[curve.arm], curve)
        figure.update_yaxes(range=[-0.03, 1.03])
        rows = [
            (curve.arm, words.whole(point.x), *mean_and_range(point))
            for curve in self.curves
            for point in thinned(curve.points)
        ]
        yield Figure(
            key="training-accuracy",
            title="Accuracy over training",
            note="On the validation examples, all difficulties together. Bands: range over seeds.",
            alt=ends(self.curves, "accuracy"),
            drawing=figure,
            table=frame_table(("arm", "step", "accuracy", "lowest seed", "highest seed"), rows, 2),
        )
