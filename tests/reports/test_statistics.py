"""Intervals and corrections against scipy, hand arithmetic and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from reports.judge.statistics.estimates import combined_stderr, estimate, holm, holm_by_name, mean_interval

GENERATOR = np.random.default_rng(7)


def test_estimate_by_hand() -> None:
    """Mean 2, sd 1, n 3: half-width is t(0.975, 2) / √3 = 4.302653 / 1.732051."""
    value = estimate([1.0, 2.0, 3.0])
    assert value is not None
    assert (value.mean, value.sd, value.values) == (2.0, 1.0, (1.0, 2.0, 3.0))
    assert value.half_width == pytest.approx(4.302653 / 1.7320508, rel=1e-6)
    assert value.excludes(-0.5)
    assert not value.excludes(4.0)


def test_one_seed_has_no_interval_and_none_has_no_estimate() -> None:
    value = estimate([2.5])
    assert value is not None
    assert (value.mean, value.low, value.high, value.sd, value.half_width) == (2.5, None, None, None, None)
    assert not value.excludes(0.0)
    assert estimate([]) is None


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_intervals_agree_with_scipy(n: int) -> None:
    baseline = GENERATOR.normal(2.3, 0.1, (40, n))
    arm = baseline + GENERATOR.normal(0.02, 0.03, (40, n))
    expected = stats.ttest_rel(arm, baseline, axis=-1)
    interval = expected.confidence_interval(0.95)
    mean, low, high = mean_interval(arm - baseline)
    np.testing.assert_allclose(mean, (arm - baseline).mean(axis=-1))
    np.testing.assert_allclose(low, interval.low, rtol=1e-9)
    np.testing.assert_allclose(high, interval.high, rtol=1e-9)


def test_holm_by_hand() -> None:
    """Sorted 0.01·3, 0.02·2, 0.04·1, each at least the one before."""
    assert holm([0.04, 0.01, 0.02]) == pytest.approx((0.04, 0.03, 0.04))
    assert holm([0.6, 0.5]) == pytest.approx((1.0, 1.0))
    assert holm([]) == ()


def test_an_arm_without_a_p_counts_in_the_correction() -> None:
    assert holm_by_name({"a": 0.01, "b": None, "c": 0.2}) == pytest.approx({"a": 0.03, "b": None, "c": 0.4})


@pytest.mark.parametrize("n", [2, 3, 5])
def test_intervals_cover_the_truth_95_times_in_100(n: int) -> None:
    truth = -0.012
    _, low, high = mean_interval(GENERATOR.normal(truth, 0.004, (20_000, n)))
    covered = np.mean((low <= truth) & (truth <= high))
    assert 0.94 <= covered <= 0.96
    _, low, high = mean_interval(GENERATOR.normal(truth, 0.004, (20_000, n)), alpha=0.0125)
    assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(0.9875, abs=0.003)


@pytest.mark.parametrize("arms", [1, 3])
def test_identical_arms_seldom_name_a_difference(arms: int) -> None:
    """At most 5 % of studies name any arm, within three Monte-Carlo standard errors.

    The arms share the baseline's losses, so their differences are correlated, as in a real study.
    """
    studies, seeds = 20_000, 3
    losses = GENERATOR.normal(2.3, 0.01, (studies, arms + 1, seeds))
    p = stats.ttest_rel(losses[:, 1:], losses[:, :1], axis=-1).pvalue
    smallest = p.min(axis=-1) * arms  # Holm's first step decides whether it names any arm at all
    for row, value in zip(p[:10].tolist(), smallest[:10], strict=True):
        assert min(holm(row)) == pytest.approx(min(value, 1.0))
    named, error = np.mean(smallest < 0.05), math.sqrt(0.05 * 0.95 / studies)
    assert named <= 0.05 + 3 * error
    if arms == 1:
        assert named >= 0.05 - 3 * error


def test_errors_of_scores_over_shared_items() -> None:
    """Item errors 0.03 and 0.04 do not shrink: mean square 0.00125; seeds: sd² / n = 0.0002 / 2."""
    assert combined_stderr([0.03, 0.04], [0.60, 0.62]) == pytest.approx(math.sqrt(0.00125 + 0.0001))
    assert combined_stderr([0.03], [0.6]) == pytest.approx(0.03)
    assert combined_stderr([0.03, None], [0.6, 0.6]) is None
    assert combined_stderr([], []) is None
