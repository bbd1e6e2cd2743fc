"""The interval of the detectable difference against tables and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from ablate.noise.power import smallest_detectable
from statsmodels.stats.weightstats import DescrStatsW

from reports.statistics.detectable import detectable_difference, sd_interval


def test_sd_interval_by_table() -> None:
    """χ²(2) has the quantiles 0.0506 and 7.378; χ²(9) has 2.700 and 19.023."""
    three, ten = sd_interval(1.0, 3), sd_interval(2.0, 10)
    assert (three.low, three.high) == pytest.approx(((2 / 7.378) ** 0.5, (2 / 0.0506) ** 0.5), rel=1e-3)
    assert (ten.low, ten.high) == pytest.approx((2 * (9 / 19.023) ** 0.5, 2 * (9 / 2.700) ** 0.5), rel=1e-3)


def test_sd_interval_holds_the_variances_that_statsmodels_does_not_reject() -> None:
    values = np.random.default_rng(0).normal(0, 0.01, 6)
    found = sd_interval(float(values.std(ddof=1)), 6)
    for end in (found.low, found.high):
        assert DescrStatsW(values).var_ddof(1) == pytest.approx(found.value**2)
        statistic = 5 * found.value**2 / end**2
        assert min(statistic / 0.831212, 12.832502 / statistic) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_the_interval_covers_the_true_detectable_difference(n: int) -> None:
    truth = smallest_detectable(0.01, n, comparisons=3)
    sds = np.random.default_rng(n).normal(0, 0.01, (4_000, n)).std(axis=1, ddof=1)
    per_sd = detectable_difference(1.0, n, comparisons=3)
    assert per_sd.value == pytest.approx(smallest_detectable(1.0, n, 3))
    covered = np.mean((per_sd.low * sds < truth) & (truth < per_sd.high * sds))
    assert covered == pytest.approx(0.95, abs=0.015)


def test_at_three_seeds_the_estimate_is_023_to_173_times_the_truth_nine_times_in_ten() -> None:
    sds = np.random.default_rng(1).normal(0, 1, (100_000, 3)).std(axis=1, ddof=1)
    assert np.quantile(sds, [0.05, 0.95]) == pytest.approx([0.23, 1.73], abs=0.01)
