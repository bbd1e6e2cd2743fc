"""Ladders against power laws that are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ablate.wings.ladders import ladder_words
from ablate.wings.ladders.laws import LadderArm, summarise_ladder, trends
from reports.judge.statistics.estimates import Estimate

STEP = 7.0
"""Compute grows sevenfold from size to size."""


def ladder(
    losses: dict[str, Callable[[float], float]],
    noise: float = 1e-3,
    seeds: int = 4,
    rng: int = 1,
    sizes: int = 4,
    misfit: Callable[[np.random.Generator], float] = lambda _: 0.0,
) -> pl.DataFrame:
    """Runs whose loss is a function of compute. A seed shifts all runs alike, `noise` each run, and `misfit` all seeds
    of an arm at a size."""
    draw = np.random.default_rng(rng)
    shifts = 0.002 * draw.standard_normal(seeds)
    rows = []
    for size in range(sizes):
        flops = 1e12 * STEP**size
        for arm, loss in losses.items():
            off = misfit(draw)
            for seed in range(seeds):
                value = loss(flops) * math.exp(shifts[seed] + noise * draw.standard_normal()) + off
                row = {"rung": f"s{size}", "arm": arm, "seed": seed, "parameters": 10, "flops": flops, "loss": value}
                rows.append(row | {"status": "finished"})
    return pl.DataFrame(rows)


def law(a: float, b: float, floor: float = 1.7) -> Callable[[float], float]:
    return lambda flops: floor + a * (flops / 1e12) ** -b


BASE = law(3.0, 0.3)
LOST_AT_ONE_SIZE = pl.when(rung="s0").then(pl.lit("absent")).otherwise(pl.col("status")).alias("status")


def arms_of(runs: pl.DataFrame, throughput: Estimate | None = None) -> dict[str, LadderArm]:
    """throughput: FLOP/s of `arm` over the baseline's."""
    return {each.arm: each for each in summarise_ladder(runs, "base", {"arm": throughput} if throughput else {})}


def test_four_sizes_find_the_exponent_and_the_floor() -> None:
    found = arms_of(ladder({"base": BASE}))["base"]
    assert found.law is not None
    assert found.undetermined is None
    assert found.law.exponent.low < 0.3 < found.law.exponent.high
    assert found.law.irreducible.low < 1.7 < found.law.irreducible.high
    assert ladder_words.law_sentence(found).startswith("base: loss falls towards 1.")


def test_the_line_goes_through_the_law_and_one_step_beyond_it() -> None:
    found = arms_of(ladder({"base": BASE}))["base"].law
    assert found is not None
    assert all(point.loss.value == pytest.approx(BASE(point.flops), rel=0.02) for point in found.line)
    assert found.line[-1].flops == pytest.approx(1e12 * STEP**4)
    assert [point.extrapolated for point in found.line] == [False] * 12 + [True] * 3
    widths = [point.loss.half_width / point.loss.value for point in found.line]
    assert widths[-1] > widths[-2] > widths[-3] == pytest.approx(widths[-4])


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        (ladder({"base": BASE}, sizes=3).with_columns(LOST_AT_ONE_SIZE), "two sizes do not show how loss falls"),
        (ladder({"base": BASE}, sizes=3), "three sizes cannot determine an irreducible loss"),
        (ladder({"base": lambda c: 3.0 + math.sin(3 * math.log(c))}), "do not follow a power law (lack of fit p = "),
        (ladder({"base": lambda c: 3.0}, noise=0.01), "noise is too large to determine the exponent"),
        (ladder({"base": BASE}, seeds=1), "fewer than two seeds trained at every size"),
    ],
    ids=["two of three sizes", "three sizes", "misfit", "no slope", "one seed"],
)
def test_no_number_without_a_law_that_the_sizes_determine(runs: pl.DataFrame, reason: str) -> None:
    found = arms_of(runs)["base"]
    assert found.law is None
    assert reason in ladder_words.law_sentence(found)


def test_rungs_of_the_same_compute_show_no_fall_with_it() -> None:
    runs = ladder({"base": BASE, "arm": law(2.5, 0.3)}).with_columns(flops=pl.lit(1e12))
    assert all(arm.law is None and arm.trend is None for arm in summarise_ladder(runs, "base"))
    assert arms_of(runs)["arm"].undetermined == "one size does not show how loss falls with compute"


def test_a_seed_that_failed_at_one_size_is_left_out_at_all() -> None:
    runs = ladder({"base": BASE}, seeds=5)
    failed = (pl.col("rung") == "s2") & (pl.col("seed") == 4)
    spoilt = runs.with_columns(
        loss=pl.when(failed).then(9.0).otherwise(pl.col("loss")),
        status=pl.when(failed).then(pl.lit("stalled")).otherwise(pl.col("status")),
    )
    without = runs.filter(pl.col("seed") < 4)
    assert arms_of(spoilt)["base"].law == arms_of(without)["base"].law


def test_an_arm_that_is_worth_twice_the_compute_is_said_to_be() -> None:
    ratio = Estimate(0.8, 0.78, 0.82, None, ())
    found = arms_of(ladder({"base": BASE, "arm": lambda c: BASE(2 * c)}), ratio)["arm"].speed_up
    assert found is not None
    assert found.effective is not None
    assert found.compute_factor.low < 2 < found.compute_factor.high
    assert found.throughput_ratio == pytest.approx(0.8)
    assert found.effective.value == pytest.approx(0.8 * found.compute_factor.value)


def test_compute_that_the_arm_did_not_use_counts_for_it() -> None:
    """The same loss as the baseline's at half its compute is a factor of two."""
    runs = ladder({"base": BASE, "arm": BASE}, noise=2e-4)
    halved = runs.with_columns(
        flops=pl.when(pl.col("arm") == "arm").then(pl.col("flops") / 2).otherwise(pl.col("flops"))
    )
    found = arms_of(halved)["arm"].speed_up
    assert found is not None
    assert found.compute_factor.low < 2 < found.compute_factor.high


def test_an_uncertain_speed_widens_the_effective_speed_up() -> None:
    """The speed's uncertainty adds in quadrature to that of the loss, as logarithms; without a speed there is no
    speed-up in time."""
    runs = ladder({"base": BASE, "arm": lambda c: BASE(2 * c)}, noise=2e-4)
    found = arms_of(runs, Estimate(0.8, 0.7, 0.9, None, ()))["arm"].speed_up
    assert found is not None
    assert found.effective is not None
    up = math.hypot(math.log(found.compute_factor.high / found.compute_factor.value), math.log(0.9 / 0.8))
    assert math.log(found.effective.high / found.effective.value) == pytest.approx(up)
    unknown = arms_of(runs)["arm"].speed_up
    assert unknown is not None
    assert (unknown.throughput_ratio, unknown.effective) == (None, None)


def test_effective_compute_is_told_as_far_as_the_baseline_reaches() -> None:
    """Twenty times the compute of the smaller sizes is within the baseline's; a thousand times is beyond all of it."""
    within = arms_of(ladder({"base": BASE, "arm": lambda c: BASE(20 * c)}))["arm"].speed_up
    assert within is not None
    assert within.compute_factor.low < 20 < within.compute_factor.high < 24
    beyond = arms_of(ladder({"base": BASE, "arm": lambda c: BASE(1000 * c)}))["arm"].speed_up
    assert beyond is not None
    assert math.isinf(beyond.compute_factor.high)


@pytest.mark.parametrize("slope", [0.02, -0.02], ids=["towards zero", "away from zero"])
def test_the_trend_of_the_gap(slope: float) -> None:
    runs = ladder({"base": BASE, "arm": lambda c: BASE(c) - 0.1 + slope * math.log10(c / 1e12)}, noise=1e-4)
    found = arms_of(runs)["arm"].trend
    assert found is not None
    assert found.slope.low < slope < found.slope.high
    assert found.slope.excludes(0)
    assert found.p < 0.05


def test_trends_are_corrected_over_the_arms() -> None:
    """Holm, by hand: of two, the smaller p is doubled, and the larger one is no smaller than that."""
    bent: dict[str, Callable[[float], float]] = {
        name: lambda c, slope=slope: BASE(c) + slope * math.log10(c) for name, slope in (("a", 0.004), ("b", 0.003))
    }
    runs = ladder({"base": BASE} | bent, noise=2e-4, sizes=3)
    alone = {name: arms_of(runs.filter(pl.col("arm").is_in(["base", name])))[name].trend for name in bent}
    plain = sorted((each.p, name) for name, each in alone.items() if each is not None)
    both = arms_of(runs)
    corrected = [each.p for _, name in plain if (each := both[name].trend) is not None]
    assert corrected == pytest.approx([min(1, 2 * plain[0][0]), max(2 * plain[0][0], plain[1][0])])


def test_too_few_runs_say_nothing() -> None:
    runs = ladder({"base": BASE, "arm": BASE}, seeds=1)
    assert arms_of(runs)["arm"].trend is None
    none = runs.with_columns(loss=pl.lit(None, pl.Float64), status=pl.lit("absent"))
    assert arms_of(none)["arm"].law is None


# What is promised, simulated


def share(found: Sequence[bool], most: float) -> None:
    """No more than `most`, within binomial error."""
    assert stats.binomtest(sum(found), len(found), most, alternative="greater").pvalue > 0.001, sum(found)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [3, 4, 5])
@pytest.mark.parametrize("misfit", [0.0, 1e-3, 4e-3, 2e-2], ids=["none", "as noise", "4 × noise", "20 × noise"])
def test_trends_that_are_not_there(sizes: int, misfit: float) -> None:
    """Three arms like the baseline, each size off by what its own tuned rate happens to cost: 5 % of ladders at most
    have a trend in any arm."""
    losses = dict.fromkeys(("base", "a", "b", "c"), BASE)
    ladders = (
        ladder(losses, seeds=5, sizes=sizes, rng=number, noise=2e-3, misfit=lambda draw: misfit * draw.exponential())
        for number in range(400)
    )
    share([any(each.p < 0.05 for each in trends(runs, "base").values()) for runs in ladders], 0.05)
