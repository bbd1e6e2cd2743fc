"""The random-effects summary: against a published analysis, a plain search, and draws of known heterogeneity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ablate.wings.compare.pooling import random_effects

BCG = np.array(
    [
        (4, 119, 11, 128),
        (6, 300, 29, 274),
        (3, 228, 11, 209),
        (62, 13536, 248, 12619),
        (33, 5036, 47, 5761),
        (180, 1361, 372, 1079),
        (8, 2537, 10, 619),
        (505, 87886, 499, 87892),
        (29, 7470, 45, 7232),
        (17, 1699, 65, 1600),
        (186, 50448, 141, 27197),
        (5, 2493, 3, 2338),
        (27, 16886, 29, 17825),
    ],
    dtype=float,
)
"""Thirteen trials of a vaccine against tuberculosis (Colditz et al. 1994): ill and well, with and without it."""


def test_a_published_analysis() -> None:
    """Log risk ratios: Q = 152.23 on 12 degrees of freedom, I² = 92.1 %, and by Paule and Mandel τ² = 0.318."""
    ill, well, ill_without, well_without = BCG.T
    n, n_without = ill + well, ill_without + well_without
    effects = np.log(ill / n / (ill_without / n_without))
    errors = np.sqrt(1 / ill - 1 / n + 1 / ill_without - 1 / n_without)
    found = random_effects(effects, errors)
    assert found.q == pytest.approx(152.233, abs=1e-3)
    assert found.i2 == pytest.approx(0.9212, abs=1e-4)
    assert found.tau**2 == pytest.approx(0.318, abs=1e-3)
    assert found.mean == pytest.approx(-0.715, abs=2e-3)


def test_tau_solves_its_equation_and_the_interval_is_students() -> None:
    values, errors = np.array([0.1, 0.3, -0.2, 0.5]), np.array([0.05, 0.1, 0.08, 0.2])
    found = random_effects(values, errors)
    grid = np.linspace(0, 1, 200_001)
    weights = 1 / (errors[:, None] ** 2 + grid)
    means = (weights * values[:, None]).sum(axis=0) / weights.sum(axis=0)
    scatter = (weights * (values[:, None] - means) ** 2).sum(axis=0)
    best = int(np.argmin(abs(scatter - 3)))
    assert found.tau**2 == pytest.approx(grid[best], abs=1e-5)
    assert found.mean == pytest.approx(means[best], abs=1e-5)
    reach = stats.t.isf(0.025, 3) / math.sqrt(weights[:, best].sum())
    assert (found.low, found.high) == pytest.approx((found.mean - reach, found.mean + reach), abs=1e-4)


def test_equal_differences_have_no_heterogeneity() -> None:
    found = random_effects([0.2, 0.2, 0.2], [0.1, 0.2, 0.1])
    assert (found.tau, found.i2, found.mean) == (0.0, 0.0, pytest.approx(0.2))
    assert found.q == pytest.approx(0.0) and found.q_p == pytest.approx(1.0)


@pytest.mark.parametrize("tau", [0.0, 0.3])
@pytest.mark.parametrize("stores", [3, 8])
def test_intervals_contain_the_mean_as_often_as_they_say(tau: float, stores: int) -> None:
    draw = np.random.default_rng(stores)
    inside, taus = 0, []
    for _ in range(1000):
        errors = draw.uniform(0.05, 0.2, stores)
        found = random_effects(draw.normal(0.4, np.hypot(errors, tau)), errors)
        inside += found.low <= 0.4 <= found.high
        taus.append(found.tau)
    least, most = (935, 1000) if tau == 0 else (920, 985)
    assert least <= inside <= most
    assert np.mean(taus) < 0.08 if tau == 0 else 0.2 < np.mean(taus) < 0.4


@pytest.mark.parametrize(("values", "errors"), [([0.1], [0.1]), ([0.1, 0.2], [0.1]), ([0.1, 0.2], [0.1, 0.0])])
def test_what_cannot_be_summarised(values: list[float], errors: list[float]) -> None:
    with pytest.raises(ValueError, match="two differences or more"):
        random_effects(values, errors)
