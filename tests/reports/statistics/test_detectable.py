"""The interval of the detectable difference against tables and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from reports.judge.noise.power import detectable
from reports.judge.statistics.estimates import detectable_effect, sd_interval


def test_sd_interval_by_table() -> None:
    """χ²(2) has the quantiles 0.0506 and 7.378; χ²(9) has 2.700 and 19.023."""
    three, ten = sd_interval(1.0, 3), sd_interval(2.0, 10)
    assert (three.low, three.high) == pytest.approx(((2 / 7.378) ** 0.5, (2 / 0.0506) ** 0.5), rel=1e-3)
    assert (ten.low, ten.high) == pytest.approx((2 * (9 / 19.023) ** 0.5, 2 * (9 / 2.700) ** 0.5), rel=1e-3)


@pytest.mark.parametrize("freedom", [1, 2, 4, 11])
def test_the_interval_covers_the_true_detectable_difference(freedom: int) -> None:
    """With a noncentral t of scipy's for the truth."""
    critical = stats.t.isf(0.05 / 3 / 2, freedom)
    of_one = detectable_effect(1.0, freedom, 0.05 / 3)
    assert of_one.value == pytest.approx(detectable(1.0, freedom, 0.05 / 3))
    assert stats.nct.sf(critical, freedom, of_one.value) == pytest.approx(0.8, abs=1e-6)
    errors = np.sqrt(np.random.default_rng(freedom).chisquare(freedom, 4_000) / freedom)
    covered = np.mean((of_one.low * errors < of_one.value) & (of_one.value < of_one.high * errors))
    assert covered == pytest.approx(0.95, abs=4 * math.sqrt(0.05 * 0.95 / 4_000))


def test_at_three_seeds_the_estimate_is_023_to_173_times_the_truth_nine_times_in_ten() -> None:
    sds = np.random.default_rng(1).normal(0, 1, (100_000, 3)).std(axis=1, ddof=1)
    assert np.quantile(sds, [0.05, 0.95]) == pytest.approx([0.23, 1.73], abs=0.01)
