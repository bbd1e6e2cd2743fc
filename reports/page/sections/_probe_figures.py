"""Figures of probe measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from reports.judge.reading.collected import Curve, CurvePoint
from reports.judge.statistics.estimates import Estimate
from reports.page.figures.base import Figure, band, line, short, thinned
from reports.page.figures.drawing import ArmStyle, Attributes, Drawing, blank
from reports.page.wording import words
from reports.page.wording.table import frame_table


@dataclass(frozen=True)
class Shown:
    """A curve of a probe: one of its numbers and, by step, the whole model's value or the maximum or minimum over its
    layers; `where` says which in words, if `WHERE` does not. `log`: logarithmic axis if all values are positive."""

    probe: str
    name: str
    over: Literal["model", "max", "min"]
    title: str
    axis: str
    note: str
    where: str | None = None
    log: bool = True


WHERE = {
    "model": "the whole model",
    "max": "the layer where it is largest",
    "min": "the layer where it is lowest",
}
SHOWN = (
    Shown(
        "gradient_norm",
        "all",
        "model",
        title="Gradient norm",
        axis="gradient norm",
        note="Norm of the gradient of the training loss, before clipping.",
    ),
    Shown(
        "update_ratio",
        "all",
        "model",
        title="Update against weights",
        axis="‖Δw‖ / ‖w‖",
        note="Size of a step's weight change, weight decay included, relative to the weights.",
    ),
    Shown(
        "activation_variance",
        "variance",
        "max",
        title="Activation variance",
        axis="variance of the residual stream",
        note="Variance of the features of each block's output, averaged over tokens.",
    ),
    Shown(
        "max_attention_logit",
        "max",
        "max",
        title="Largest attention logit",
        axis="largest logit",
        note="Maximum over heads, queries and keys.",
    ),
    Shown(
        "attention_entropy",
        "mean",
        "min",
        title="Attention entropy",
        axis="entropy (nats)",
        note="Entropy of a query's attention weights, averaged over heads and queries.",
        log=False,
    ),
    Shown(
        "log_z",
        "mean",
        "model",
        title="log Z",
        axis="log Z (nats)",
        note="log Σ exp of the final logits, averaged over tokens.",
        where="the final logits",
        log=False,
    ),
    Shown(
        "expert_load",
        "largest",
        "max",
        title="Load of the most used expert",
        axis="load / even share",
        note="1 if all experts are used equally.",
        log=False,
    ),
    Shown(
        "chunk_length",
        "mean",
        "model",
        title="Length of chunks",
        axis="tokens per chunk",
        note="Tokens per chunk that the model makes, averaged over a batch. Declared FLOPs assume the ratio of the "
        "spec.",
        log=False,
    ),
)


@dataclass(frozen=True)
class ProbeCurves:
    """One probe's curves, per arm: against layers at the first and at the last probed step, and against steps."""

    shown: Shown
    start: tuple[Curve, ...]
    end: tuple[Curve, ...]
    by_step: tuple[Curve, ...]


@dataclass(frozen=True)
class Scaling:
    """Scaling with depth L of the gradient norm of the last layer's FFN output at the first step, over arms that differ
    only in depth: norm ∝ L^slope, fitted to the logarithms by least squares, seed by seed."""

    curve: Curve
    slope: Estimate


LOG: Attributes = {"type": "log", "dtick": "D2", "tickformat": "~g"}
"""A logarithmic axis with ticks at 1, 2 and 5."""

LAYER_TICKS = 16


def by_depth(probe: ProbeCurves, style: Mapping[str, ArmStyle]) -> Figure:
    said, drawn = probe.shown, _axes("layer", probe.shown, (*probe.start, *probe.end))
    layers = 1 + max(point.x for curve in probe.start for point in curve.points)
    drawn.update_xaxes(tick0=0, dtick=math.ceil(layers / LAYER_TICKS))
    ended = {curve.arm for curve in probe.end}
    for curve in probe.start:
        _line(drawn, style[curve.arm], curve, faint=True, named=curve.arm not in ended)
    for curve in probe.end:
        _line(drawn, style[curve.arm], curve)
    times = {"start": "first step", "end": "last step"}
    rows = [
        (curve.arm, times[curve.kind], f"{point.x:.0f}", *_numbers(point))
        for curve in (*probe.start, *probe.end)
        for point in curve.points
    ]
    return Figure(
        key=f"{_key(probe)}-by-depth",
        title=f"{said.title} by depth",
        note=f"{said.note} Dotted: at the first step. Solid: at the last. Bands: range over seeds.",
        alt=_alt("In the last layer", probe.end or probe.start),
        drawing=drawn,
        table=frame_table(("arm", "when", "layer", "mean", "lowest seed", "highest seed"), rows, labels=2),
    )


def by_step(probe: ProbeCurves, style: Mapping[str, ArmStyle]) -> Figure:
    said, drawn = probe.shown, _axes("training step", probe.shown, probe.by_step)
    for curve in probe.by_step:
        _line(drawn, style[curve.arm], curve)
    rows = [
        (curve.arm, f"{point.x:,.0f}", *_numbers(point)) for curve in probe.by_step for point in thinned(curve.points)
    ]
    return Figure(
        key=f"{_key(probe)}-by-step",
        title=f"{said.title} by step",
        note=f"{said.note} Shown: {said.where or WHERE[said.over]}. Bands: range over seeds.",
        alt=_alt("At the end", probe.by_step),
        drawing=drawn,
        table=frame_table(("arm", "step", "mean", "lowest seed", "highest seed"), rows),
    )


def scaling_figure(found: Sequence[Scaling], style: Mapping[str, ArmStyle]) -> Figure:
    drawn = blank("layers", "gradient norm of the last layer’s FFN output")
    drawn.update_xaxes(type="log", tickvals=sorted({p.x for s in found for p in s.curve.points}))
    drawn.update_yaxes(**LOG)
    for scaling in found:
        _line(drawn, style[scaling.curve.arm], scaling.curve)
    slopes = {}
    for s in found:
        half = "" if s.slope.half_width is None else f" ± {s.slope.half_width:.2f}"
        slopes[s.curve.arm] = words.signed(s.slope.mean, 2) + half
    said = "; ".join(f"{arm} {slope}" for arm, slope in slopes.items())
    rows = [
        (s.curve.arm, slopes[s.curve.arm], f"{point.x:.0f}", *_numbers(point))
        for s in found
        for point in s.curve.points
    ]
    return Figure(
        key="gradient-scaling",
        title="Gradient of the last FFN at the first step, against depth",
        note=(
            "Arms that differ only in their number of layers form one line. Log–log slopes, with 95 % intervals over "
            f"seeds: {said}. Theory (Xiong et al. 2020, plain initialisation): 0 under post-norm, −0.5 under pre-norm. "
            "Bands: range over seeds."
        ),
        alt=f"Slopes: {said}",
        drawing=drawn,
        table=frame_table(("arm", "slope", "layers", "mean", "lowest seed", "highest seed"), rows),
    )


def _axes(x_title: str, shown: Shown, curves: Sequence[Curve]) -> Drawing:
    drawn = blank(x_title, shown.axis)
    if shown.log and all(point.low > 0 for curve in curves for point in curve.points):
        drawn.update_yaxes(**LOG)
    return drawn


def _line(drawn: Drawing, look: ArmStyle, curve: Curve, faint: bool = False, named: bool = True) -> None:
    band(drawn, look, curve, 1.0, 0.06 if faint else 0.16)
    line(drawn, look, curve, width=1.4 if faint else 2.2, named=named)
    if faint:
        drawn.data[-1].set({"mode": "lines", "line.dash": "dot"})


def _numbers(point: CurvePoint) -> tuple[str, str, str]:
    return f"{point.mean:.4g}", f"{point.low:.4g}", f"{point.high:.4g}"


def _alt(where: str, curves: Sequence[Curve]) -> str:
    return f"{where}: " + "; ".join(f"{curve.arm} {short(curve.points[-1].mean):.4g}" for curve in curves)


def _key(probe: ProbeCurves) -> str:
    return probe.shown.probe.replace("_", "-")
