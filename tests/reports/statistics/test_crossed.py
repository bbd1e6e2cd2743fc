"""Crossed variance components against an analysis of variance, t-intervals, and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from reports.judge.statistics.crossed import crossed
from tests.regression import least_squares


def table(draw: np.random.Generator, shape: tuple[int, int], sds: tuple[float, float, float]) -> np.ndarray:
    """Cells with standard deviations of rows, columns and residual about zero."""
    rows, columns, residual = sds
    return (
        rows * draw.standard_normal((shape[0], 1))
        + columns * draw.standard_normal((1, shape[1]))
        + residual * draw.standard_normal(shape)
    )


def test_components_are_those_of_an_analysis_of_variance() -> None:
    """Mean squares as what a factor's dummy variables explain beyond those of the other."""
    values = table(np.random.default_rng(0), (4, 9), (1.0, 2.0, 0.5))
    cells, losses = list(np.ndindex(4, 9)), values.ravel().tolist()
    left, freedom = least_squares(cells, losses)
    without_rows, _ = least_squares([(0, column) for _, column in cells], losses)
    without_columns, _ = least_squares([(row, 0) for row, _ in cells], losses)
    residual = left / freedom
    found = crossed(values)
    assert found.residual_square == pytest.approx(residual)
    assert found.row_variance == pytest.approx(((without_rows - left) / 3 - residual) / 9)
    assert found.column_square == pytest.approx((without_columns - left) / 8)
    assert found.mean == pytest.approx(values.mean())


def test_rows_alone_give_the_t_interval_over_rows() -> None:
    """Columns that agree more than chance lets them add nothing."""
    values = np.array([[0.30, 0.31, 0.29], [0.12, 0.10, 0.14], [0.25, 0.26, 0.24]])
    found, expected = crossed(values), stats.ttest_1samp(values.mean(axis=1), 0)
    interval = expected.confidence_interval(0.95)
    assert (found.interval().low, found.interval().high) == pytest.approx((interval.low, interval.high))
    assert found.p() == pytest.approx(expected.pvalue)
    assert found.column_square < found.residual_square


def test_p_is_below_the_level_where_the_interval_excludes_zero() -> None:
    draw = np.random.default_rng(1)
    for _ in range(20):
        values = 1.2 + table(draw, (3, 20), (0.5, 1.0, 1.0))
        p = crossed(values).p()
        assert crossed(values).interval(1.01 * p).excludes(0.0)
        assert not crossed(values).interval(0.99 * p).excludes(0.0)


def test_weights_make_the_mean_that_of_all_tokens_and_the_columns_scatter_a_jackknife() -> None:
    """The column part of the error is that of a ratio: a delete-one jackknife over documents agrees with it."""
    draw = np.random.default_rng(2)
    weights = draw.integers(5, 200, 400).astype(float)
    values = table(draw, (3, 400), (0.0, 1.0, 1e-6))
    found = crossed(values, weights)
    own = values.mean(axis=0)
    without = (np.dot(weights, own) - weights * own) / (weights.sum() - weights)
    jackknife = math.sqrt(399 / 400 * np.square(without - without.mean()).sum())
    assert found.mean == pytest.approx(np.dot(weights, own) / weights.sum())
    assert found.interval().half_width == pytest.approx(stats.t.isf(0.025, 399) * jackknife, rel=0.02)


def test_a_table_with_gaps_or_one_row_is_refused() -> None:
    for values in ([[1.0, math.nan], [1.0, 2.0]], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match="full table"):
            crossed(values)
    assert math.isnan(crossed([[1.0, 1.0], [1.0, 1.0]]).p())


CASES = [(1.0, 0.0, 1.0), (0.0, 1.0, 1.0), (1.0, 3.0, 3.0), (0.3, 0.0, 5.0), (1.0, 10.0, 3.0)]
"""Standard deviations of seeds, documents and residual: either alone, both, and neither."""


def coverage(sds: tuple[float, float, float], shape: tuple[int, int], studies: int) -> float:
    """Share of intervals that hold the mean."""
    draw = np.random.default_rng(3)
    return sum(not crossed(table(draw, shape, sds)).interval().excludes(0.0) for _ in range(studies)) / studies


def test_the_interval_of_the_mean_covers_over_both_sources() -> None:
    assert coverage((1.0, 3.0, 3.0), (3, 50), 300) >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 300)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 50), (3, 300), (8, 100)], ids=str)
@pytest.mark.parametrize("sds", CASES, ids=str)
def test_coverage(sds: tuple[float, float, float], shape: tuple[int, int]) -> None:
    """2,000 tables. At least 95 % of the mean; the larger of both sources makes it at most 98 %."""
    held = coverage(sds, shape, 2_000)
    print(f"sd {sds}, {shape}: {held:.4f}")
    error = 3 * math.sqrt(0.05 * 0.95 / 2_000)
    assert 0.95 - error <= held <= 0.98 + error


def test_two_seeds_have_a_p_however_far_apart_the_end_of_the_interval_lies() -> None:
    """t(1) at the least level is 10^99, whose square is large."""
    table = crossed([[0.1, 0.2, 0.3], [0.2, 0.1, 0.35]])
    p = table.p()
    assert 0 < p < 1
    assert table.interval(p).low == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("seeds", "documents"), [(2, 2), (3, 6), (4, 4), (5, 300), (12, 13)])
def test_there_is_a_p_at_any_shape(seeds: int, documents: int) -> None:
    draw = np.random.default_rng(1)
    table = crossed(1.0 + draw.normal(0, 0.3, (seeds, documents)))
    assert 0 < table.p() < 0.5
