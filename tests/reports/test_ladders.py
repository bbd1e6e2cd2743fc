"""Ladders against power laws that are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from scipy import stats

from reports.findings.ladders import LadderArm, summarise_ladder

SIZES = {"s": 1e12, "m": 1e13, "l": 1e14}


def ladder(
    losses: dict[str, Callable[[float], float]], noise: float = 0.0, seeds: int = 4, rng: int = 0
) -> pl.DataFrame:
    """Runs whose loss is a function of compute; seeds shift all arms of a size alike, and `noise` each run."""
    draw = np.random.default_rng(rng)
    rows = []
    for size, flops in SIZES.items():
        for seed in range(seeds):
            shared = 1 + 0.002 * (seed - (seeds - 1) / 2)
            for arm, loss in losses.items():
                value = loss(flops) * shared * math.exp(noise * draw.standard_normal())
                row = {"size": size, "arm": arm, "seed": seed, "parameters": 10, "flops": flops, "loss": value}
                rows.append(row | {"flops_per_second": {"base": 1e9}.get(arm, 0.8e9)})
    return pl.DataFrame(rows)


def law(a: float, b: float) -> Callable[[float], float]:
    return lambda flops: a * flops**-b


def arm(runs: pl.DataFrame, name: str = "arm") -> LadderArm:
    return next(each for each in summarise_ladder(runs, "base") if each.arm == name)


def test_the_exponent_is_that_of_the_law_and_of_scipy_s_regression() -> None:
    runs = ladder({"base": law(30, 0.07)}, noise=0.01)
    found = arm(runs, "base").exponent
    assert found is not None
    theirs = stats.linregress(np.log(runs["flops"]), np.log(runs["loss"]))
    half = stats.t.ppf(0.975, len(runs) - 2) * theirs.stderr
    assert (found.value, found.low, found.high) == pytest.approx(
        (-theirs.slope, -theirs.slope - half, -theirs.slope + half)
    )
    assert found.low < 0.07 < found.high


def test_the_line_goes_through_the_law_and_beyond_it_is_marked_and_wider() -> None:
    line = arm(ladder({"base": law(30, 0.07)}, noise=0.01), "base").line
    assert all(point.loss == pytest.approx(law(30, 0.07)(point.flops), rel=0.02) for point in line)
    assert [point.extrapolated for point in line] == [False] * 24 + [True] * 24
    assert line[-1].flops == pytest.approx(1e15)
    widths = [point.high / point.low for point in line]
    assert widths[-1] == max(widths)


def test_an_arm_that_is_worth_twice_the_compute_is_said_to_be() -> None:
    runs = ladder({"base": law(30, 0.07), "arm": lambda c: law(30, 0.07)(2 * c)}, noise=1e-4)
    found = arm(runs).speed_up
    assert found is not None and found.effective is not None
    assert found.compute_factor.value == pytest.approx(2, rel=0.03)
    assert found.compute_factor.low < 2 < found.compute_factor.high
    assert found.throughput_ratio == pytest.approx(0.8)
    assert found.effective.value == pytest.approx(0.8 * found.compute_factor.value)


def test_compute_that_the_arm_did_not_use_counts_for_it() -> None:
    """The same loss as the baseline's at half its compute is a factor of two."""
    runs = ladder({"base": law(30, 0.07), "arm": law(30, 0.07)}, noise=1e-5)
    halved = runs.with_columns(
        pl.when(pl.col("arm") == "arm").then(pl.col("flops") / 2).otherwise(pl.col("flops")).alias("flops")
    )
    found = arm(halved).speed_up
    assert found is not None and found.compute_factor.value == pytest.approx(2, rel=0.02)


def test_an_uncertain_speed_widens_the_effective_speed_up() -> None:
    """Seeds whose speeds scatter by 10 % leave ln ratio ± t · sd / √n, beside what the loss leaves open."""
    runs = ladder({"base": law(30, 0.07), "arm": lambda c: law(30, 0.07)(2 * c)}, noise=1e-4)
    factors = np.exp(0.1 * np.random.default_rng(0).standard_normal(runs.height))
    noisy = runs.with_columns(pl.col("flops_per_second") * factors)
    found = arm(noisy).speed_up
    assert found is not None and found.effective is not None
    top = noisy.filter(pl.col("flops") == pl.col("flops").max())
    pairs = top.filter(arm="arm").join(top.filter(arm="base"), on="seed", suffix="_base")
    logs = np.log((pairs["flops_per_second"] / pairs["flops_per_second_base"]).to_numpy())
    low, high = stats.t.interval(0.95, len(logs) - 1, logs.mean(), stats.sem(logs))
    width = math.log(found.effective.high / found.effective.low)
    assert width == pytest.approx(high - low, rel=0.1)
    assert width > 2 * math.log(found.compute_factor.high / found.compute_factor.low)


@pytest.mark.parametrize(
    ("slope", "sign"), [(0.02, 1), (-0.02, -1)], ids=["the gap shrinks", "the gap grows, in the arm's favour"]
)
def test_the_trend_of_the_gap(slope: float, sign: int) -> None:
    base = law(30, 0.07)
    runs = ladder({"base": base, "arm": lambda c: base(c) - 0.1 + slope * math.log10(c / 1e12)}, noise=3e-4)
    found = arm(runs).trend
    assert found is not None
    assert found.excludes_zero and found.low < slope < found.high and math.copysign(1, found.value) == sign


def test_the_interval_of_the_trend_holds_its_promise() -> None:
    """In 95 % of ladders without a trend the interval contains none."""
    base = law(30, 0.07)
    found = [
        arm(ladder({"base": base, "arm": lambda c: base(c) - 0.05}, noise=3e-3, rng=seed)).trend for seed in range(200)
    ]
    wrong = sum(each is not None and each.excludes_zero for each in found)
    assert stats.binomtest(wrong, 200, 0.05).pvalue > 0.001


def test_too_few_runs_say_nothing() -> None:
    runs = ladder({"base": law(30, 0.07), "arm": law(31, 0.07)}, seeds=1)
    assert arm(runs.filter(size="s")).trend is None
    assert arm(runs.filter(size="s")).speed_up is None
    assert arm(runs.with_columns(loss=pl.lit(None, pl.Float64))).line == ()


def test_no_speed_up_where_the_baseline_does_not_surely_improve_with_compute() -> None:
    runs = ladder({"base": lambda _: 3.0, "arm": lambda _: 2.9}, noise=0.01)
    assert arm(runs).speed_up is None
