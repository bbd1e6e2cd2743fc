"""Ladders of three sizes or more: how loss falls with compute, the trend of the gap, and its worth in compute. Pure.

    L = E + A·C^(−b)                  a power law per arm          (`ladders.scaling_law`)
    L_arm − L_base = c + s·log₁₀ C    the trend of the gap         (`ladders.trend`)
    L_arm(C) = L_base(f·C)            its effective compute f      (`ladders.effective_compute`)
    effective speed-up = f × (FLOP/s of the arm / FLOP/s of the baseline)

Seeds are random effects: the runs of one seed share its influence at all sizes. If the sizes do not determine a law, a
reason replaces its numbers. Trends are corrected (Holm) over the arms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from ablate.wings.ladders import scaling_law, trend
from ablate.wings.ladders.effective_compute import Budget, EffectiveCompute, effective_compute
from ablate.wings.ladders.scaling_law import ScalingLaw
from reports.judge.statistics.estimates import Estimate, Floats, Interval, estimate, holm
from reports.judge.statistics.simultaneous import Evidence, difference_intervals
from reports.judge.verdicts import ALPHA

POINTS = 12
"""Points of a fitted line within the range of sizes."""
BEYOND = 3
"""Points of a fitted line beyond the largest size."""

TOO_FEW = {
    0: "no run has ended",
    1: "one size does not show how loss falls with compute",
    2: "two sizes do not show how loss falls with compute",
    3: "three sizes cannot determine an irreducible loss, so there is no exponent",
}
"""Reason why there is no law, by the number of sizes."""


@dataclass(frozen=True)
class LadderSize:
    """An arm at one size; `flops` are those of one run."""

    name: str
    parameters: int
    flops: float
    loss: Estimate | None


@dataclass(frozen=True)
class LinePoint:
    """The fitted loss at a compute, with the interval of its mean over seeds."""

    flops: float
    loss: Interval
    extrapolated: bool


@dataclass(frozen=True)
class Law:
    """Fitted parameters of an arm's power law."""

    exponent: Interval
    irreducible: Interval
    line: tuple[LinePoint, ...]


@dataclass(frozen=True)
class SpeedUp:
    """Effective compute over all sizes, and what it is worth in time on this machine."""

    compute: EffectiveCompute
    compute_factor: Interval
    throughput_ratio: float | None
    effective: Interval | None


@dataclass(frozen=True)
class GapTrend:
    """Slope of the gap in nats per tenfold compute; `p` is corrected over the arms."""

    slope: Interval
    p: float


@dataclass(frozen=True)
class LadderArm:
    """One arm over all sizes. `undetermined` is the reason for a missing law."""

    arm: str
    sizes: tuple[LadderSize, ...]
    law: Law | None = None
    undetermined: str | None = None
    trend: GapTrend | None = None
    speed_up: SpeedUp | None = None


def summarise_ladder(
    runs: pl.DataFrame, baseline: str, throughput: Mapping[str, Estimate] | None = None
) -> tuple[LadderArm, ...]:
    """Findings on every arm, from one row per run: rung, arm, seed, parameters, flops, status, loss (null if missing).

    Sizes are in order of compute. throughput: ratio of an arm's FLOP/s to the baseline's at the last size, if known.
    """
    ratios = throughput or {}
    names = runs["arm"].unique(maintain_order=True).to_list()
    fits = {name: _fit(runs, name) for name in names}
    found, worth = trends(runs, baseline), {each.arm: each for each in effective_compute(budgets(runs), baseline)}
    return tuple(
        LadderArm(
            name,
            tuple(_size(rows) for rows in runs.filter(arm=name).partition_by("rung", maintain_order=True)),
            _law(fits[name]),
            _undetermined(runs, name, fits[name]),
            found.get(name),
            _speed_up(worth.get(name), ratios.get(name)),
        )
        for name in names
    )


def _size(rows: pl.DataFrame) -> LadderSize:
    return LadderSize(
        name=rows["rung"][0],
        parameters=int(rows["parameters"][0]),
        flops=float(rows["flops"][0]),
        loss=estimate(rows.filter(status="finished")["loss"].to_list()),
    )


def _table(runs: pl.DataFrame, value: str) -> tuple[Floats, Floats]:
    """Compute (sizes,), and values (sizes, seeds) for the seeds that trained at every size."""
    sizes = runs.partition_by("rung", maintain_order=True)
    trained = [dict(rows.filter(status="finished").select("seed", value).iter_rows()) for rows in sizes]
    seeds = sorted(set.intersection(*map(set, trained))) if trained else []
    return np.array([rows["flops"][0] for rows in sizes]), np.array([[each[s] for s in seeds] for each in trained])


def _fit(runs: pl.DataFrame, name: str) -> ScalingLaw | None:
    """The fitted law; None with fewer than three sizes or two seeds, or if seeds do not differ."""
    flops, losses = _table(runs.filter(arm=name), "loss")
    if len(set(flops)) < scaling_law.FEWEST_SIZES or losses.shape[1] < 2 or not np.ptp(losses, axis=1).any():
        return None
    return scaling_law.fit(flops, losses)


def _law(fit: ScalingLaw | None) -> Law | None:
    if fit is None or not fit.determined:
        return None
    inside = np.geomspace(fit.flops[0], fit.flops[-1], POINTS).tolist()
    beyond = np.geomspace(fit.flops[-1], fit.flops[-1] * fit.reach, BEYOND).tolist()
    places = [*((flops, False) for flops in inside), *((flops, True) for flops in beyond)]
    line = tuple(LinePoint(flops, fit.loss(flops), extrapolated) for flops, extrapolated in places)
    return Law(fit.exponent(), fit.irreducible(), line)


def _undetermined(runs: pl.DataFrame, name: str, fit: ScalingLaw | None) -> str | None:
    """Reason why there is no law; None if there is one."""
    sizes = runs.filter(arm=name, status="finished")["flops"].n_unique()
    if sizes in TOO_FEW:
        return TOO_FEW[sizes]
    if fit is None:
        return "fewer than two seeds trained at every size"
    if fit.determined:
        return None
    p = fit.lack_of_fit
    if p is not None and p < ALPHA:
        return f"its {sizes} sizes do not follow a power law (lack of fit p = {p:.2g}), so there is no exponent"
    return "noise is too large to determine the exponent"


def trends(runs: pl.DataFrame, baseline: str) -> dict[str, GapTrend]:
    """Trends of arms that trained at three sizes or more with two seeds or more in common with the baseline."""
    others = [name for name in runs["arm"].unique(maintain_order=True) if name != baseline]
    found = {name: _trend(runs, name, baseline) for name in others}
    known = {name: each for name, each in found.items() if each is not None and not math.isnan(each.p)}
    tests = [Evidence(each.value, each.p, each.ends) for each in known.values()]
    corrected, intervals = holm([test.p for test in tests]), difference_intervals(tests)
    return {name: GapTrend(interval, p) for name, interval, p in zip(known, intervals, corrected, strict=True)}


def _trend(runs: pl.DataFrame, name: str, baseline: str) -> trend.Trend | None:
    pairs = runs.filter(arm=name).join(runs.filter(arm=baseline), on=["rung", "seed"], suffix="_base")
    both = pairs.filter(status_base="finished").with_columns(gap=pl.col("loss") - pl.col("loss_base"))
    flops, gaps = _table(both.with_columns(flops=pl.col("flops_base")), "gap")
    if len(set(flops)) < trend.FEWEST_SIZES or gaps.shape[1] < 2:
        return None
    return trend.trend(np.log10(flops), gaps)


def budgets(runs: pl.DataFrame) -> dict[str, list[Budget]]:
    """Finished runs of every arm by rung."""
    done = runs.with_columns(loss=pl.when(status="finished").then("loss"))
    found: dict[str, list[Budget]] = {name: [] for name in runs["arm"].unique(maintain_order=True)}
    for (arm, rung), rows in done.group_by("arm", "rung", maintain_order=True):
        losses = dict(rows.drop_nulls("loss").select("seed", "loss").iter_rows())
        found[str(arm)].append(Budget(str(rung), float(rows["flops"][0]), losses))
    return found


def _speed_up(found: EffectiveCompute | None, ratio: Estimate | None) -> SpeedUp | None:
    if found is None or found.factor is None:
        return None
    in_time = None if ratio is None else found.factor.times(ratio.mean, ratio.low, ratio.high)
    return SpeedUp(found, found.factor, None if ratio is None else ratio.mean, in_time)
