"""Paired difference in loss over the course of training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected, Curve, Line, average, lines_of
from reports.page.figures.base import (
    NEUTRAL,
    Figure,
    ends,
    late_range,
    leaves_out,
    line,
    mean_and_range,
    thin_line,
    thinned,
)
from reports.page.figures.drawing import ArmStyle, blank
from reports.page.sections import Section
from reports.page.wording.table import frame_table

MOST_WITH_SEEDS = 12
"""Most arms with lines per seed: with more, these hide the arms' lines."""
MOST_SEEDS = 400
"""Most lines per seed: more slow the page down and form a cloud."""


@dataclass(frozen=True)
class DifferenceCurves(Section):
    """Validation loss minus the baseline's with the same seed, against the fraction of training done.

    Arms may take different numbers of steps, so the baseline's curve is interpolated linearly at the same fraction of
    its own training.
    """

    place: ClassVar[int] = 13

    curves: tuple[Curve, ...]
    seeds: tuple[Curve, ...]
    """One curve per pair of runs."""

    @classmethod
    def summarise(cls, data: Collected) -> Self:
        baseline = dict(lines_of(data, data.study.baseline, "validation_loss"))
        lines: dict[str, list[Line]] = {}
        for arm in (arm.name for arm in data.study.arms if arm.name != data.study.baseline):
            logged = lines_of(data, arm, "validation_loss")
            lines[arm] = [
                (x / x[-1], y - np.interp(x / x[-1], base_x / base_x[-1], base_y))
                for (x, y), (base_x, base_y) in ((line, baseline[seed]) for seed, line in logged if seed in baseline)
                if x[-1] > 0 and base_x[-1] > 0
            ]
        return cls(
            tuple(Curve(arm, "difference", average(found)) for arm, found in lines.items()),
            tuple(Curve(arm, "seed", average([line])) for arm, found in lines.items() for line in found),
        )

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        curves = [curve for curve in self.curves if len(curve.points) > 1]
        if not curves:
            return
        figure = blank("share of training done", f"loss minus the baseline's ({summary.unit})", 320)
        thin = self.seeds if len(curves) <= MOST_WITH_SEEDS and len(self.seeds) <= MOST_SEEDS else ()
        for curve in thin:
            thin_line(figure, style[curve.arm], curve)
        for curve in curves:
            line(figure, style[curve.arm], curve)
        figure.add_hline(y=0, line=NEUTRAL)
        figure.update_xaxes(tickformat=".0%")
        low, high = late_range(curves, thin)
        figure.update_yaxes(range=[min(low, 0), max(high, 0)])
        rows = [
            (curve.arm, f"{point.x:.0%}", *mean_and_range(point)) for curve in curves for point in thinned(curve.points)
        ]
        yield Figure(
            key="difference-curves",
            title=f"Loss minus that of {summary.baseline} over training",
            note=(
                "Validation loss minus the baseline's with the same seed at the same share of training. "
                + "Thin lines: seeds. " * bool(thin)
                + f"Verdicts use the end of training only. {leaves_out(curves, 'the first steps')}"
            ),
            alt=ends(curves, "difference"),
            drawing=figure,
            table=frame_table(("arm", "training done", "mean", "lowest seed", "highest seed"), rows),
            wide=True,
        )
