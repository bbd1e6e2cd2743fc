"""Differences with all their noise: against scipy's t-tests, and against Monte Carlo where errors add up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from reports.judge.noise import Noise
from reports.judge.noise.difference import NOTHING, UNBOUNDED, Difference, Floats, Penalty, Side, choice_penalty

DRAWS = 1_000_000
LEVELS = (0.05, 0.04, 0.01, 0.0125)


def quantile(penalty: Penalty, tail: float) -> float:
    """The loss that is reached or exceeded with probability `tail`."""
    return float(np.interp(1 - tail, np.cumsum(penalty.weights) - penalty.weights / 2, penalty.values))


def of_draws(values: Floats) -> Penalty:
    return Penalty.of(values, np.full(len(values), 1 / len(values)))


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_a_mean_with_its_standard_error_has_scipys_t_test(seeds: int) -> None:
    draw = np.random.default_rng(1)
    for _ in range(20):
        base = draw.normal(2.3, 0.1, seeds)
        arm = base + draw.normal(0.005, 0.01, seeds)
        found = Difference.of(float(np.mean(arm - base)), float(stats.sem(arm - base)), seeds - 1)
        expected = stats.ttest_rel(arm, base)
        assert found.p() == pytest.approx(expected.pvalue)
        for level in LEVELS:
            assert found.interval(level) == pytest.approx(tuple(expected.confidence_interval(1 - level)))
        above = stats.ttest_1samp(arm - base, -0.02, alternative="greater").pvalue
        below = stats.ttest_1samp(arm - base, 0.02, alternative="less").pvalue
        assert found.p_within(0.02) == pytest.approx(max(above, below))


def test_each_end_of_an_interval_is_that_of_its_own_test() -> None:
    worse, better = Side(0.02, 0.01, 5.5), Side(0.05, 0.04, 3.0)
    found = Difference(0.05, worse, better)
    assert found.below(0.0) == pytest.approx(stats.t.sf(2.0, 5.5))
    assert found.above(0.0) == pytest.approx(stats.t.sf(-1.25, 3.0))
    assert found.p() == pytest.approx(2 * stats.t.sf(2.0, 5.5))
    for level in LEVELS:
        low, high = found.interval(level)
        assert low == pytest.approx(stats.t.ppf(level / 2, 5.5, 0.02, 0.01))
        assert high == pytest.approx(stats.t.isf(level / 2, 3.0, 0.05, 0.04))
    assert (found.error, found.freedom) == (0.04, 3.0)


def test_a_failed_run_leaves_one_test_or_none() -> None:
    known, arm_fails, base_fails = Side(0.1, 0.02, 8.0), Side(math.inf, 1.0, 1.0), Side(-math.inf, 1.0, 1.0)
    higher = Difference(0.1, known, arm_fails)
    assert higher.above(0.0) == 1.0
    assert higher.p() == pytest.approx(2 * stats.t.sf(5, 8))
    assert higher.interval(0.05) == (pytest.approx(stats.t.ppf(0.025, 8, 0.1, 0.02)), math.inf)
    assert higher.p_within(10.0) == 1.0 and (higher.error, higher.freedom) == (0.02, 8.0)
    lower = Difference(-0.1, base_fails, replace(known, value=-0.1))
    assert lower.p() == pytest.approx(higher.p())
    assert lower.interval(0.05) == pytest.approx((-math.inf, -higher.interval(0.05)[0]))
    neither = Difference(0.1, base_fails, arm_fails)
    assert (neither.p(), neither.interval(0.05), neither.error) == (1.0, (-math.inf, math.inf), math.inf)
    assert neither.room(0.05) == higher.room(0.05) == 0.0


@pytest.mark.parametrize("freedom", [1, 2, 12, 200])
@pytest.mark.parametrize("shared", [0.002, 0.01, 0.1, 1.0])
def test_an_error_that_seeds_share_adds_to_theirs(freedom: int, shared: float) -> None:
    """From small beside the error of seeds to a hundred times as large."""
    draw = np.random.default_rng(freedom)
    total = 0.03 + 0.01 * draw.standard_t(freedom, DRAWS) + shared * draw.normal(size=DRAWS)
    found = replace(Difference.of(0.03, 0.01, freedom), shared=shared)
    for level in LEVELS:
        for end, tail in zip(found.interval(level), (level / 2, 1 - level / 2), strict=True):
            assert np.mean(total < end) == pytest.approx(tail, abs=4 * math.sqrt(level / 2 / DRAWS))
    beyond = min(np.mean(total < 0), np.mean(total > 0))
    assert found.p() == pytest.approx(2 * beyond, abs=8 * math.sqrt(beyond / DRAWS) + 1e-9)


@pytest.mark.parametrize("shared", [0.0, 0.005])
def test_what_choices_may_have_lost_moves_each_end_by_itself(shared: float) -> None:
    """The arm's own moves the lower end, the other's the upper one."""
    draw = np.random.default_rng(2)
    own, other = draw.exponential(0.02, DRAWS), abs(draw.normal(0, 0.01, DRAWS))
    total = 0.03 + 0.01 * draw.standard_t(6, DRAWS) + shared * draw.normal(size=DRAWS)
    found = replace(Difference.of(0.03, 0.01, 6), shared=shared, own=of_draws(own), other=of_draws(other))
    for level in LEVELS:
        low, high = found.interval(level)
        assert low == pytest.approx(np.quantile(total - own, level / 2), abs=0.0015)
        assert high == pytest.approx(np.quantile(total + other, 1 - level / 2), abs=0.0015)
    assert found.below(0.0) == pytest.approx(np.mean(total - own < 0), rel=0.01)
    assert found.above(0.05) == pytest.approx(np.mean(total + other > 0.05), rel=0.01)
    assert found.p() == 2 * min(found.below(0.0), found.above(0.0))


def test_p_is_the_level_at_which_the_interval_ends_at_zero() -> None:
    draw = np.random.default_rng(3)
    lost = of_draws(draw.exponential(0.01, 10_000))
    for shared in (0.0, 0.01):
        for value in (0.05, -0.05):
            found = replace(Difference.of(value, 0.01, 5), shared=shared, own=lost, other=lost)
            low, high = found.interval(found.p())
            assert (low if value > 0 else high) == pytest.approx(0.0, abs=1e-9)


def test_room_for_choices_only_widens() -> None:
    draw = np.random.default_rng(4)
    lost = of_draws(draw.exponential(0.01, 10_000))
    plain = replace(Difference.of(0.03, 0.01, 6), shared=0.004)
    for level in LEVELS:
        low, high = plain.interval(level)
        for own, other in ((lost, NOTHING), (NOTHING, lost), (lost, lost)):
            found = replace(plain, own=own, other=other)
            wider = found.interval(level)
            assert (wider[0] < low) == (own is lost) and (wider[1] > high) == (other is lost)
            assert (wider[0] == low) == (own is NOTHING) and (wider[1] == high) == (other is NOTHING)
            assert found.room(level) == pytest.approx(max(low - wider[0], wider[1] - high))
            assert found.p() >= plain.p()
    assert plain.room(0.05) == 0.0


def test_an_arm_whose_loss_nothing_bounds_leaves_no_end() -> None:
    plain = Difference.of(0.03, 0.01, 6)
    low, high = plain.interval(0.05)
    assert replace(plain, own=UNBOUNDED).interval(0.05) == (-math.inf, high)
    assert replace(plain, other=UNBOUNDED).interval(0.05) == (low, math.inf)
    both = replace(plain, own=UNBOUNDED, other=UNBOUNDED)
    assert both.interval(0.05) == (-math.inf, math.inf)
    assert both.p() == both.p_within(1.0) == 1.0
    assert replace(plain, own=UNBOUNDED).p() == 1.0 > replace(plain, other=UNBOUNDED).p() == plain.p()
    assert replace(plain, own=UNBOUNDED).room(0.05) == math.inf


def test_penalties_add_up() -> None:
    draw = np.random.default_rng(5)
    one, two = draw.exponential(0.02, DRAWS), abs(draw.normal(0, 0.01, DRAWS))
    both = of_draws(one).plus(of_draws(two))
    for level in (0.5, 0.1, 0.025, 0.005):
        assert quantile(both, level) == pytest.approx(np.quantile(one + two, 1 - level), rel=0.03)
    assert NOTHING.plus(both) is both
    assert not of_draws(one).plus(UNBOUNDED).is_bounded


def test_the_better_of_two_settings_may_have_lost_what_a_t_distribution_says() -> None:
    """The quantile for means 0.01 apart with noise 0.01 each is (t·√2·0.01 − 0.01)⁺."""
    found = choice_penalty([2.30, 2.31], 0, Noise(0.01, 6), draws=200_000)
    for level in (0.2, 0.05, 0.01):
        expected = max(0.0, stats.t.isf(level, 6) * math.sqrt(2) * 0.01 - 0.01)
        assert quantile(found, level) == pytest.approx(expected, rel=0.05)
