"""Rows of tuning losses that disagree: against statsmodels, and how often one is found that is there, or is not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols

from reports.statistics.erratic import LEVEL, steady_noise
from reports.statistics.tuning_noise import pooled, residual_noise

Tables = list[list[list[float]]]

STEADY = [
    [[3.864, 3.869], [3.840, 3.845], [3.906, 3.897]],
    [[3.865, 3.843], [3.783, 3.814], [3.789, 3.804], [3.952, 3.924]],
]
SPIKED = [[3.803, 3.821], [3.686, 3.737], [3.698, 3.669], [4.269, 3.881]]


def test_a_pair_of_seeds_far_apart_is_left_out_and_has_a_noise_of_its_own() -> None:
    found = steady_noise([*STEADY, SPIKED])
    assert list(found.erratic) == [(2, 3)]
    assert found.noise == pooled([noise for t in (*STEADY, SPIKED[:3]) if (noise := residual_noise(t))])
    assert found.noise is not None and found.noise.sd < 0.03
    assert steady_noise(STEADY).erratic == {}


def test_the_test_is_that_of_an_outlying_row_in_a_linear_model() -> None:
    """A row with a difference of its two seeds for itself, beside that of its arm: the F test of it, by statsmodels."""
    rows = [
        {"loss": loss, "arm": t, "row": f"{t}.{j}", "seed": seed, "own": seed * ((t, j) == (2, 3))}
        for t, table in enumerate([*STEADY, SPIKED])
        for j, seeds in enumerate(table)
        for seed, loss in enumerate(seeds)
    ]
    small, large = (ols(f"loss ~ 0 + C(row) + C(arm):seed{more}", pd.DataFrame(rows)).fit() for more in ("", " + own"))
    _, p, freedom = large.compare_f_test(small)
    assert freedom == 1 and p < LEVEL / len(rows)
    assert steady_noise([*STEADY, SPIKED]).erratic[2, 3] == pytest.approx(np.sqrt(small.ssr - large.ssr))
    assert steady_noise([*STEADY, SPIKED]).noise.sd == pytest.approx(np.sqrt(large.mse_resid))  # type: ignore[union-attr]


def test_with_nothing_to_compare_with_nothing_is_called_erratic() -> None:
    assert steady_noise([]).noise is None
    assert steady_noise([[[1.0], [2.0]]]).noise is None  # one seed
    pair = steady_noise([[[1.0, 1.0], [1.0, 2.0]]])
    assert pair.erratic == {} and pair.noise is not None


def losing(draw: np.random.Generator, studies: int, times: float) -> tuple[int, int]:
    """Of so many studies of six arms: those that lose another row than that with `times` the noise, and those that lose
    this one."""
    other = own = 0
    for _ in range(studies):
        tables: Tables = []
        for arm in range(6):
            scale = np.array([1.0, 1.0, times if arm == 3 else 1.0])[:, None]
            tables.append((draw.normal(0, 0.02, 2) + scale * draw.normal(0, 0.01, (3, 2))).tolist())
        found = steady_noise(tables).erratic
        other, own = other + bool(set(found) - {(3, 2)}), own + ((3, 2) in found)
    return other, own


def test_few_rows_are_lost_where_all_have_the_same_noise() -> None:
    other, own = losing(np.random.default_rng(0), 100, times=1.0)
    assert stats.binomtest(other + own, 100, LEVEL, alternative="greater").pvalue > 0.01
    other, own = losing(np.random.default_rng(1), 30, times=20.0)
    assert own > 18 and stats.binomtest(other, 30, LEVEL, alternative="greater").pvalue > 0.01
