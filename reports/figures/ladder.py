"""Ladders: loss against compute with fitted lines, and the gap to the baseline."""

from __future__ import annotations

import plotly.graph_objects as go

from reports.figures.base import NEUTRAL, Figure, mean_point, short
from reports.figures.style import Look, blank
from reports.findings.ladders import LadderArm
from reports.findings.shapes import StudySummary
from reports.statistics.estimates import Estimate
from reports.wording import ladder_words, words
from reports.wording.tables import frame_table


def loss_by_compute(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    """Every size of every arm, the fitted power laws, and what they extrapolate to, dashed."""
    if not summary.ladder:
        return None
    figure = blank("training FLOPs", f"validation loss ({summary.unit})")
    for arm in summary.ladder:
        look = style[arm.arm]
        _line(figure, arm, look)
        for place, rung in enumerate(rung for rung in arm.rungs if rung.loss):
            mean_point(figure, look, look.label, _exactly(rung.flops), rung.loss)
            figure.data[-1].update(legendgroup=look.label, showlegend=place == 0)
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    return Figure(
        key="ladder",
        title="Loss against compute, at every size",
        note="Bars are 95 % intervals over seeds. Lines are power laws fitted to the runs, with the interval of the"
        " line; dotted, they extrapolate to ten times the largest compute, where nothing was measured.",
        alt="; ".join(ladder_words.sentence(arm) for arm in summary.ladder),
        drawing=figure,
        table=frame_table(
            ("arm", "size", "parameters", "FLOPs", f"loss ({summary.unit})"),
            [
                (arm.arm, rung.size, words.count(rung.parameters), words.large(rung.flops), words.plus_minus(rung.loss))
                for arm in summary.ladder
                for rung in arm.rungs
            ],
            2,
        ),
    )


def _exactly(value: float) -> Estimate:
    return Estimate(value, None, None, None, (value,))


def _line(figure: go.Figure, arm: LadderArm, look: Look) -> None:
    for beyond, opacity in ((False, 0.16), (True, 0.07)):
        points = [point for point in arm.line if point.extrapolated == beyond]
        x = [short(point.flops) for point in points]
        common = {"legendgroup": look.label, "showlegend": False, "hoverinfo": "skip", "mode": "lines"}
        figure.add_scatter(
            x=x + x[::-1],
            y=[short(point.high) for point in points] + [short(point.low) for point in points[::-1]],
            fill="toself",
            fillcolor=look.fill(opacity),
            line={"width": 0},
            **common,
        )
        dash = "dot" if beyond else look.dash
        figure.add_scatter(
            x=x,
            y=[short(point.loss) for point in points],
            line={"color": look.colour, "width": 1.8, "dash": dash},
            **common,
        )


def gap_by_compute(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    """The paired difference from the baseline at every size."""
    found = [(arm, rung, gap) for arm in summary.ladder for rung, gap in arm.gaps]
    if not found:
        return None
    figure = blank("training FLOPs of the baseline", f"difference in loss ({summary.unit})")
    figure.add_hline(y=0, line=NEUTRAL)
    seen: set[str] = set()
    for arm, rung, gap in found:
        look = style[arm.arm]
        mean_point(figure, look, look.label, _exactly(rung.flops), gap)
        figure.data[-1].update(legendgroup=look.label, showlegend=arm.arm not in seen)
        seen.add(arm.arm)
    figure.update_xaxes(type="log")
    return Figure(
        key="ladder-gap",
        title=f"Difference from {summary.baseline}, at every size",
        note="Below zero is better. Differences are paired by seed; bars are 95 % intervals of the mean.",
        alt="; ".join(f"{arm.arm} at {rung.size}: {ladder_words.gap(gap)}" for arm, rung, gap in found),
        drawing=figure,
        table=frame_table(
            ("arm", "size", f"difference ({summary.unit})"),
            [(arm.arm, rung.size, ladder_words.gap(gap)) for arm, rung, gap in found],
            2,
        ),
    )
