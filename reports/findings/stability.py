"""What probes saw: by depth at the start and at the end of training, by step, and how gradients scale with depth."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import polars as pl
from scipy import stats

from ablate.store.documents import StudyArm
from reports.findings.curves import Curve, Point
from reports.reading.collect import Collected
from reports.statistics.estimates import Estimate, estimate

FEWEST_DEPTHS = 3
"""A slope over fewer depths would hide that a line does not fit."""


@dataclass(frozen=True)
class Shown:
    """What is drawn of a probe: which of its numbers and, by step, the whole model's or the `over` of its layers."""

    probe: str
    name: str
    over: Literal["model", "max", "min"]


SHOWN = (
    Shown("gradient_norm", "all", "model"),
    Shown("update_ratio", "all", "model"),
    Shown("activation_variance", "variance", "max"),
    Shown("max_attention_logit", "max", "max"),
    Shown("attention_entropy", "mean", "min"),
    Shown("log_z", "mean", "model"),
    Shown("expert_load", "largest", "max"),
)


@dataclass(frozen=True)
class ProbeCurves:
    """One probe's curves, per arm: against layers at the first probed step and at the last, and against steps."""

    shown: Shown
    start: tuple[Curve, ...]
    end: tuple[Curve, ...]
    by_step: tuple[Curve, ...]


@dataclass(frozen=True)
class Scaling:
    """How the gradient of the last layer's FFN output at the first step goes with depth L, over arms that differ in
    nothing else: norm ∝ L^slope, fitted to the logarithms by least squares, seed by seed."""

    curve: Curve
    slope: Estimate


def probe_curves(data: Collected) -> tuple[ProbeCurves, ...]:
    """Those of which something was seen. Diverged runs count too: they are what probes are for."""
    found = (_curves(data, shown) for shown in SHOWN if data.probes.height)
    return tuple(curves for curves in found if curves.start or curves.by_step)


def _curves(data: Collected, shown: Shown) -> ProbeCurves:
    rows = data.probes.filter(probe=shown.probe, name=shown.name).drop_nulls("value")
    layers = rows.drop_nulls("layer")
    step = pl.col("step")
    first, last = layers.filter(step == 1), layers.filter(step > 1, step == step.max().over("digest"))
    if shown.over == "model":
        steps = rows.filter(pl.col("layer").is_null())
    else:
        value = pl.col("value").max() if shown.over == "max" else pl.col("value").min()
        steps = layers.group_by("arm", "digest", "step", maintain_order=True).agg(value)
    return ProbeCurves(
        shown,
        start=_per_arm(data, first, "layer", "start"),
        end=_per_arm(data, last, "layer", "end"),
        by_step=_per_arm(data, steps, "step", "step"),
    )


def _per_arm(data: Collected, rows: pl.DataFrame, x: str, kind: str) -> tuple[Curve, ...]:
    arms = (arm.name for arm in data.study.arms)
    curves = (Curve(arm, kind, _points(rows.filter(arm=arm), x)) for arm in arms)
    return tuple(curve for curve in curves if curve.points)


def _points(rows: pl.DataFrame, x: str) -> tuple[Point, ...]:
    """Mean and range over the seeds that have a value there."""
    value = pl.col("value")
    over = rows.group_by(x).agg(mean=value.mean(), low=value.min(), high=value.max(), seeds=pl.len()).sort(x)
    return tuple(Point(*row) for row in over.iter_rows())


def gradient_scaling(data: Collected) -> tuple[Scaling, ...]:
    """Xiong et al. 2020, arXiv:2002.04745, Theorem 1: slope 0 under post-norm, −½ under pre-norm."""
    rows = data.probes.filter(probe="gradient_norm", name="ffn.output", step=1).drop_nulls(["layer", "value"])
    last = rows.filter(pl.col("layer") == pl.col("layer").max().over("digest"), pl.col("value") > 0)
    last = last.with_columns(depth=pl.col("layer") + 1)
    found = (_scaling(name, last.filter(pl.col("arm").is_in(arms))) for name, arms in _families(data))
    return tuple(scaling for scaling in found if scaling is not None)


def _families(data: Collected) -> Iterator[tuple[str, list[str]]]:
    """Arms that differ in their number of layers only, under the first one's name."""
    found: dict[str, list[StudyArm]] = {}
    for arm in data.study.arms:
        others = {path: value for path, value in arm.edits.items() if path != "n_layers"}
        found.setdefault(json.dumps(others, sort_keys=True), []).append(arm)
    for arms in found.values():
        yield arms[0].name, [arm.name for arm in arms]


def _scaling(name: str, rows: pl.DataFrame) -> Scaling | None:
    by_seed = [seed for _, seed in rows.group_by("seed", maintain_order=True) if seed.height >= FEWEST_DEPTHS]
    slope = estimate([_slope(seed) for seed in by_seed])
    return None if slope is None else Scaling(Curve(name, "scaling", _points(rows, "depth")), slope)


def _slope(rows: pl.DataFrame) -> float:
    return float(stats.linregress(rows["depth"].log().to_numpy(), rows["value"].log().to_numpy()).slope)
