"""Room for the noise of tuning in intervals: against tests without it, brute force, and curves that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import interpolate, stats

from reports.statistics.estimates import equivalence_p, mean_interval, paired_p
from reports.statistics.tuning_noise import (
    NOTHING,
    Ends,
    Noise,
    Penalty,
    Widened,
    penalty,
    pooled,
    rate_noise,
    residual_noise,
)

DIFFERENCES = [0.031, 0.012, 0.024, 0.019]


def interval_of(values: list[float]) -> Ends:
    def ends(level: float) -> tuple[float, float]:
        _, low, high = mean_interval(values, level)
        return float(low), float(high)

    return ends


def test_without_room_the_interval_and_the_tests_are_those_of_student() -> None:
    found = Widened.of(interval_of(DIFFERENCES), NOTHING, NOTHING)
    assert found.p() == pytest.approx(float(paired_p(DIFFERENCES)), rel=2e-3)
    assert found.p_tie(0.03) == pytest.approx(float(equivalence_p(DIFFERENCES, 0.03)), rel=2e-3)
    for level in (0.2, 0.05, 0.004):
        assert found.ends(level) == pytest.approx(interval_of(DIFFERENCES)(level), abs=1e-5)
        assert found.room(level) == pytest.approx(0.0, abs=1e-5)


def test_each_end_moves_by_what_its_own_arm_may_have_lost() -> None:
    """By brute force: quantiles of T − P_own and T + P_other."""
    draw = np.random.default_rng(0)
    own, other = (Penalty(np.sort(scale * draw.chisquare(2, 20_000)), 30) for scale in (0.004, 0.001))
    found = Widened.of(interval_of(DIFFERENCES), own, other)
    t = np.mean(DIFFERENCES) + stats.sem(DIFFERENCES) * draw.standard_t(3, 400_000)
    low = np.quantile(t - draw.choice(own.draws, len(t)), 0.025)
    high = np.quantile(t + draw.choice(other.draws, len(t)), 0.975)
    assert found.ends(0.05) == pytest.approx((low, high), abs=3e-4)
    assert found.p() == pytest.approx(2 * np.mean(t < draw.choice(own.draws, len(t))), rel=0.05)
    assert Widened.of(interval_of(DIFFERENCES), own, NOTHING).ends(0.05)[1] == pytest.approx(
        interval_of(DIFFERENCES)(0.05)[1], abs=1e-5
    )


def test_the_p_is_the_level_at_which_the_interval_ends_at_zero() -> None:
    own = Penalty(np.sort(np.abs(np.random.default_rng(1).normal(0, 0.01, 20_000))), 4)
    for values in (DIFFERENCES, [-value for value in DIFFERENCES]):
        found = Widened.of(interval_of(values), own, own)
        low, high = found.ends(found.p())
        assert (low if values[0] > 0 else high) == pytest.approx(0.0, abs=1e-6)
        assert found.p() > float(paired_p(values))


def test_noise_is_what_is_left_of_rows_and_columns() -> None:
    draw = np.random.default_rng(2)
    tables = [draw.normal(0, 0.01, (5, 3)) + draw.normal(0, 1, (5, 1)) + draw.normal(0, 1, 3) for _ in range(300)]
    found = pooled([noise for table in tables if (noise := residual_noise(table))])
    assert found is not None
    assert (found.sd, found.freedom) == (pytest.approx(0.01, rel=0.03), 300 * 8)
    assert residual_noise([[1.0], [2.0]]) is None and pooled([]) is None


def test_without_noise_the_penalty_is_the_distance_to_the_least() -> None:
    silent, rates = Noise(1e-12, 4), [1e-3, 2e-3, 4e-3, 8e-3]
    assert penalty([2.0, 1.5, 1.7], 2, silent).bound(0.05) == pytest.approx(0.2)
    means = [2.2, 2.0, 2.05, 2.4]
    fine = np.linspace(math.log(1e-3), math.log(8e-3), 20_001)
    curve = interpolate.BarycentricInterpolator(np.log(rates), means)(fine)
    best = float(np.exp(fine[curve.argmin()]))
    assert rate_noise(rates, means, rates, best, silent).penalty.bound(0.05) == pytest.approx(0.0, abs=1e-6)
    off = rate_noise(rates, means, rates, 2e-3, silent)
    assert off.penalty.bound(0.05) == pytest.approx(2.0 - curve.min(), abs=1e-4)


def test_where_the_rate_matters_noise_costs_little_and_where_it_does_not_as_much_as_the_noise() -> None:
    rates, x = [1e-3, 2e-3, 4e-3], np.log([0.5, 1.0, 2.0])
    bounds = [
        rate_noise(rates, (2.0 + c * x**2).tolist(), rates, 2e-3, Noise(0.005, 8)).penalty.bound(0.05)
        for c in (0.3, 0.1, 0.01, 0.0)
    ]
    assert bounds == sorted(bounds)
    assert bounds[0] < 0.0005 and 0.005 < bounds[-1] < 0.03
    wide, narrow = (rate_noise(rates, (2.0 + c * x**2).tolist(), rates, 2e-3, Noise(0.005, 8)) for c in (0.01, 0.3))
    assert narrow.rate.high / narrow.rate.low < 1.2
    assert wide.rate.high / wide.rate.low > 3
