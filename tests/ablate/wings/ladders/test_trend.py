"""Trends over sizes: against scipy and plain least squares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ablate.wings.ladders.trend import trend
from tests.regression import Regression

X = np.array([0.0, 0.8, 1.7, 2.4])


def test_the_wider_of_two_t_intervals() -> None:
    """The trend's interval is the wider of that of the seeds' slopes (scipy) and that of least squares through the
    means."""
    draw = np.random.default_rng(0)
    for misfit in (0.0, 0.1):
        table = 0.02 * X[:, None] + misfit * draw.normal(size=(4, 1)) + 0.01 * draw.normal(size=(4, 5))
        slopes = [float(np.polyfit(X, column, 1)[0]) for column in table.T]
        line = Regression.of(table.mean(axis=1), np.column_stack([np.ones(4), X]))
        seeds = stats.ttest_1samp(slopes, 0.0)
        ends = seeds.confidence_interval(0.95)
        found, wide = trend(X, table), trend(X, table).interval()
        assert found.value == pytest.approx(float(line.coefficients[1])) == pytest.approx(float(np.mean(slopes)))
        assert found.p == pytest.approx(max(float(seeds.pvalue), float(line.p_values[1])))
        low, high = line.interval(1)
        assert (wide.low, wide.high) == pytest.approx((min(low, ends.low), max(high, ends.high)))


@pytest.mark.parametrize("table", [np.ones((2, 3)), np.ones((3, 1)), np.full((3, 2), np.inf)])
def test_too_little_for_a_trend_is_refused(table: np.ndarray) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match="needs values of 3 sizes or more"):
        trend(np.arange(len(table)), table)
