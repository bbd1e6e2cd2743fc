"""Figures over training: loss by step and by FLOPs, and the paired difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from reports.curves import Curve
from reports.figures.base import (
    NEUTRAL,
    Figure,
    band,
    ends,
    line,
    mean_and_range,
    short,
    thinned,
)
from reports.figures.style import Look, blank
from reports.findings import StudySummary
from reports.tables import frame_table

EARLY = 0.2
"""Share of training left out of the loss axes at first: the fall from the start dwarfs the rest."""


def loss_by_step(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    return _loss(summary, style, "step", "training step", lambda _: 1.0)


def loss_by_flops(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    per_step = {arm.name: arm.budget.flops / arm.budget.steps for arm in summary.arms}
    return _loss(summary, style, "FLOPs", "training FLOPs", lambda arm: per_step[arm])


def _loss(
    summary: StudySummary,
    style: dict[str, Look],
    unit: str,
    x_title: str,
    scale: Callable[[str], float],
) -> Figure | None:
    curves = [curve for curve in summary.training if curve.points]
    if not curves:
        return None
    figure = blank(x_title, "loss (nats/token)")
    for curve in curves:
        _loss_curve(figure, style[curve.arm], curve, scale(curve.arm))
    figure.update_yaxes(range=_late_range(curves))
    rows = [
        (curve.arm, f"{point.x * scale(curve.arm):.4g}", *mean_and_range(point))
        for curve in curves
        if curve.kind == "validation"
        for point in thinned(curve.points)
    ]
    return Figure(
        key=f"loss-by-{unit.lower()}",
        title=f"Loss by {x_title}",
        note=(
            "Thick lines: validation loss. Thin lines: training loss, averaged over neighbouring "
            "steps. Bands: range over seeds. The axis leaves out the fall at the start: zoom out "
            "to see it."
        ),
        alt=ends(curves, "validation"),
        drawing=figure,
        table=frame_table(("arm", unit, "validation loss", "lowest seed", "highest seed"), rows),
    )


def _loss_curve(figure: go.Figure, look: Look, curve: Curve, scale: float) -> None:
    thick = curve.kind == "validation"
    band(figure, look, curve, scale, 0.16 if thick else 0.08)
    figure.add_scatter(
        x=[short(point.x * scale) for point in curve.points],
        y=[short(point.mean) for point in curve.points],
        name=look.label,
        legendgroup=look.label,
        showlegend=thick,
        mode="lines+markers" if thick else "lines",
        marker={"symbol": look.symbol, "size": 6},
        line={"color": look.colour, "dash": look.dash, "width": 2.4 if thick else 0.9},
        opacity=1 if thick else 0.65,
        hovertemplate=f"{curve.kind} %{{y:.4f}} at %{{x:.4s}}",
    )


def _late_range(curves: Sequence[Curve]) -> list[float]:
    """From the lowest loss to the highest after the early part of training, with a margin."""
    late = [p for curve in curves for p in curve.points if p.x >= EARLY * curve.points[-1].x]
    low, high = min(p.low for p in late), max(p.high for p in late)
    margin = 0.05 * (high - low) or 0.05
    return [low - margin, high + margin]


def difference_curves(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    """How the paired difference develops over training."""
    curves = [curve for curve in summary.differences if len(curve.points) > 1]
    if not curves:
        return None
    figure = blank("share of training done", "loss minus the baseline's (nats/token)")
    for curve in curves:
        band(figure, style[curve.arm], curve, 1.0, 0.16)
        line(figure, style[curve.arm], curve)
    figure.add_hline(y=0, line=NEUTRAL)
    figure.update_xaxes(tickformat=".0%")
    rows = [
        (curve.arm, f"{point.x:.0%}", *mean_and_range(point)) for curve in curves for point in thinned(curve.points)
    ]
    return Figure(
        key="difference-curves",
        title="The difference over training",
        note=(
            "Validation loss minus the baseline's with the same seed at the same share of "
            "training. Bands: range over seeds. Only the end of the schedule decides."
        ),
        alt=ends(curves, "difference"),
        drawing=figure,
        table=frame_table(("arm", "training done", "mean", "lowest seed", "highest seed"), rows),
    )
