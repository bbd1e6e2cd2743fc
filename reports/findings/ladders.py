"""Ladders: one study at several sizes. Loss against compute, whether the gap grows, and what it is worth.

    ln L = a − b · ln C                        a power law per arm (Kaplan et al. 2020, arXiv:2001.08361)
    L_arm − L_base = c + s · log₁₀ C           the gap's trend, over pairs of runs with the same size and seed
    compute factor = C_base(L_arm) / C_arm     what the baseline would need for the arm's loss, over what the arm used
    effective speed-up = compute factor × (FLOP/s of the arm / FLOP/s of the baseline)

A straight line in ln–ln has no irreducible loss, so it holds within the sizes measured and not far beyond them.
Regressions are ordinary least squares over runs, with 95 % Student t-intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from statsmodels.regression.linear_model import OLS
from statsmodels.tools.tools import add_constant

from reports.statistics.estimates import ALPHA, Estimate, estimate, geometric

REACH = 10.0
"""The fitted line is drawn to so many times the largest compute, as an extrapolation."""
POINTS = 24
DRAWS = 20_000

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rung:
    """An arm at one size; `flops` is of one run."""

    size: str
    parameters: int
    flops: float
    loss: Estimate | None
    flops_per_second: Estimate | None


@dataclass(frozen=True)
class LinePoint:
    """The fitted loss at a compute, with the interval of the line itself."""

    flops: float
    loss: float
    low: float
    high: float
    extrapolated: bool


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return not self.low <= 0 <= self.high


@dataclass(frozen=True)
class SpeedUp:
    """What the loss difference at the largest size is worth in compute, and in time on this machine."""

    compute_factor: Interval
    throughput_ratio: float | None
    effective: Interval | None


@dataclass(frozen=True)
class LadderArm:
    """One arm over all sizes. `exponent` is b; `trend` is s in nats per tenfold compute. None without enough runs."""

    arm: str
    rungs: tuple[Rung, ...]
    exponent: Interval | None
    line: tuple[LinePoint, ...]
    gaps: tuple[tuple[Rung, Estimate], ...] = ()
    """The paired difference from the baseline at each size of the baseline."""
    trend: Interval | None = None
    speed_up: SpeedUp | None = None


def summarise_ladder(runs: pl.DataFrame, baseline: str) -> tuple[LadderArm, ...]:
    """Every arm, from one row per run: size, arm, seed, parameters, flops, loss and flops_per_second (null: none)."""
    arms = runs["arm"].unique(maintain_order=True).to_list()
    done = runs.drop_nulls("loss")
    return tuple(_arm(runs, done, arm, baseline) for arm in arms)


def _arm(runs: pl.DataFrame, done: pl.DataFrame, arm: str, baseline: str) -> LadderArm:
    rungs = tuple(_rung(runs.filter(arm=arm, size=size)) for size in runs["size"].unique(maintain_order=True))
    fit = _power_law(done.filter(arm=arm))
    exponent = _slope(fit, sign=-1) if fit else None
    line = _line(fit, [rung.flops for rung in rungs if rung.loss]) if fit else ()
    if arm == baseline:
        return LadderArm(arm, rungs, exponent, line)
    pairs = done.filter(arm=arm).join(done.filter(arm=baseline), on=["size", "seed"], suffix="_base")
    speed_up = _speed_up(pairs, _power_law(done.filter(arm=baseline)))
    return LadderArm(arm, rungs, exponent, line, _gaps(runs, pairs, baseline), _trend(pairs), speed_up)


def _gaps(runs: pl.DataFrame, pairs: pl.DataFrame, baseline: str) -> tuple[tuple[Rung, Estimate], ...]:
    found = []
    for size in runs["size"].unique(maintain_order=True):
        rows = pairs.filter(size=size)
        gap = estimate((rows["loss"] - rows["loss_base"]).to_list())
        if gap is not None:
            found.append((_rung(runs.filter(arm=baseline, size=size)), gap))
    return tuple(found)


def _rung(rows: pl.DataFrame) -> Rung:
    speeds = rows["flops_per_second"].drop_nulls().to_list()
    return Rung(
        size=rows["size"][0],
        parameters=int(rows["parameters"][0]),
        flops=float(rows["flops"][0]),
        loss=estimate(rows["loss"].drop_nulls().to_list()),
        flops_per_second=estimate(speeds),
    )


def _regression(x: Floats, y: Floats) -> Any:
    """Least squares of y on x; None where two sizes and a spare run are not there."""
    if len(np.unique(x)) < 2 or len(x) < 3:
        return None
    return OLS(y, add_constant(x)).fit()


def _power_law(runs: pl.DataFrame) -> Any:
    return _regression(np.log(runs["flops"].to_numpy()), np.log(runs["loss"].to_numpy()))


def _slope(fit: Any, sign: int = 1) -> Interval:
    low, high = sorted(sign * float(end) for end in fit.conf_int(alpha=ALPHA)[1])
    return Interval(sign * float(fit.params[1]), low, high)


def _line(fit: Any, flops: list[float]) -> tuple[LinePoint, ...]:
    inside = np.geomspace(min(flops), max(flops), POINTS)
    beyond = np.geomspace(max(flops), REACH * max(flops), POINTS)
    x = np.concatenate([inside, beyond])
    frame = fit.get_prediction(add_constant(np.log(x), has_constant="add")).summary_frame(alpha=ALPHA)
    columns = np.exp(frame[["mean", "mean_ci_lower", "mean_ci_upper"]].to_numpy())
    return tuple(
        LinePoint(float(c), float(loss), float(low), float(high), extrapolated=i >= POINTS)
        for i, (c, (loss, low, high)) in enumerate(zip(x, columns, strict=True))
    )


def _trend(pairs: pl.DataFrame) -> Interval | None:
    fit = _regression(np.log10(pairs["flops_base"].to_numpy()), (pairs["loss"] - pairs["loss_base"]).to_numpy())
    return _slope(fit) if fit else None


def _speed_up(pairs: pl.DataFrame, base_fit: Any) -> SpeedUp | None:
    """At the largest compute that both have. None where the baseline's loss does not surely fall with compute."""
    if base_fit is None or not pairs.height:
        return None
    exponent = _slope(base_fit, sign=-1)
    top = pairs.filter(pl.col("flops_base") == pairs["flops_base"].max())
    gap = estimate((top["loss"].log() - top["loss_base"].log()).to_list())
    if gap is None or gap.sd is None or exponent.low <= 0:
        return None
    ahead = float(top["flops_base"][0] / top["flops"][0])
    draws = _draws(gap, base_fit, ahead)
    factor = _with_interval(ahead * math.exp(gap.mean / float(base_fit.params[1])), draws)
    speeds = top.drop_nulls(["flops_per_second", "flops_per_second_base"])
    ratio = geometric((speeds["flops_per_second"] / speeds["flops_per_second_base"]).to_list())
    if ratio is None:
        return SpeedUp(factor, None, None)
    logs = math.log(ratio.mean) + _spread(ratio.sd or 0.0, len(ratio.values), np.random.default_rng(1), len(draws))
    return SpeedUp(factor, ratio.mean, _with_interval(ratio.mean * factor.value, draws + logs))


def _draws(gap: Estimate, base_fit: Any, ahead: float) -> Floats:
    """ln(ahead · exp(−gap / b)), gap in ln L, with gap and b drawn from their t-distributions."""
    draw = np.random.default_rng(0)
    b, b_error = -float(base_fit.params[1]), float(base_fit.bse[1])
    gaps = gap.mean + _spread(gap.sd or 0.0, len(gap.values), draw, DRAWS)
    slopes = b + b_error * draw.standard_t(base_fit.df_resid, DRAWS)
    falling = slopes > 0
    return np.asarray(np.log(ahead) - gaps[falling] / slopes[falling])


def _spread(sd: float, n: int, draw: np.random.Generator, count: int) -> Floats:
    """How far a mean of n may be off, by its t-distribution; nothing is known of a single value."""
    return np.asarray(sd / math.sqrt(n) * draw.standard_t(max(n - 1, 1), count))


def _with_interval(value: float, logs: Floats) -> Interval:
    low, high = np.exp(np.quantile(logs, [ALPHA / 2, 1 - ALPHA / 2]))
    return Interval(value, float(low), float(high))
