"""Probe results: by depth at the first and last step, by step, and the scaling of gradients with depth."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import polars as pl
import scipy  # loads its submodules on first use

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected, Curve, points_by
from reports.judge.reading.documents import StudyDocuments
from reports.judge.reading.evaluations import KEYS, keyed
from reports.judge.statistics.estimates import estimate
from reports.page.figures.base import Figure
from reports.page.figures.drawing import ArmStyle
from reports.page.sections import Section
from reports.page.sections._probe_figures import SHOWN, ProbeCurves, Scaling, Shown, by_depth, by_step, scaling_figure

PROBES = KEYS | {
    "step": pl.Int64,
    "probe": pl.String,
    "layer": pl.Int64,
    "name": pl.String,
    "value": pl.Float64,
}
FEWEST_DEPTHS = 3
"""Fewest depths for a slope: with fewer, a poor fit would not show."""


@dataclass(frozen=True)
class Stability(Section):
    """Probe results of all runs, including diverged ones, for which probes exist."""

    place: ClassVar[int] = 160
    gallery: ClassVar[str] = "Stability"
    gallery_note: ClassVar[str] = (
        "Values that the study’s probes recorded at the first step (before any learning), at intervals, and at the"
        " last. Diverged runs are included up to their end. Probes do not change training."
    )

    probes: tuple[ProbeCurves, ...]
    scaling: tuple[Scaling, ...]

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Mapping[str, pl.DataFrame]:
        """Probes of ended runs that recorded some, even if the log is gone, so that reading it reports that. A run
        under way has no end-of-training values yet."""
        known = zip(documents.keys, documents.tables.results["has_probes"].to_list(), strict=True)
        probed = (key for key, has_probes in known if has_probes)
        frames = (keyed(documents.store.read_probes(key.digest), key, PROBES) for key in probed)
        return {"probes": pl.concat([pl.DataFrame(schema=PROBES), *frames])}

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        if data.frames["probes"].is_empty():
            return None
        found = (_curves(data, shown) for shown in SHOWN)
        return cls(tuple(curves for curves in found if curves.start or curves.by_step), _gradient_scaling(data))

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """The check of the theory first, if the study allows it; then each probe by depth and by step."""
        if self.scaling:
            yield scaling_figure(self.scaling, style)
        for probe in self.probes:
            if probe.start:
                yield by_depth(probe, style)
            if any(len(curve.points) > 1 for curve in probe.by_step):
                yield by_step(probe, style)


def _curves(data: Collected, shown: Shown) -> ProbeCurves:
    rows = data.frames["probes"].filter(probe=shown.probe, name=shown.name).drop_nulls("value")
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
    curves = (Curve(arm, kind, points_by(x, "value", rows.filter(arm=arm))) for arm in arms)
    return tuple(curve for curve in curves if curve.points)


def _gradient_scaling(data: Collected) -> tuple[Scaling, ...]:
    """Xiong et al. 2020, arXiv:2002.04745, Theorem 1: slope 0 under post-norm, −½ under pre-norm."""
    rows = data.frames["probes"].filter(probe="gradient_norm", name="ffn.output", step=1).drop_nulls(["layer", "value"])
    last = rows.filter(pl.col("layer") == pl.col("layer").max().over("digest"), pl.col("value") > 0)
    last = last.with_columns(depth=pl.col("layer") + 1)
    found = []
    families: dict[str, list[str]] = {}  # arms that differ only in their number of layers
    for arm in data.study.arms:
        others = {path: value for path, value in arm.edits.items() if path != "n_layers"}
        families.setdefault(json.dumps(others, sort_keys=True), []).append(arm.name)
    for arms in families.values():
        own = last.filter(pl.col("arm").is_in(arms))
        seeds = [rows for _, rows in own.group_by("seed", maintain_order=True) if rows.height >= FEWEST_DEPTHS]
        logs = [(rows["depth"].log().to_numpy(), rows["value"].log().to_numpy()) for rows in seeds]
        slope = estimate([float(scipy.stats.linregress(*each).slope) for each in logs])
        if slope is not None:
            found.append(Scaling(Curve(arms[0], "scaling", points_by("depth", "value", own)), slope))
    return tuple(found)
