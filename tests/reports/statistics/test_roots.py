"""The roots and quantiles that reports find without `scipy.optimize` and `scipy.stats` are those of these."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import optimize, special, stats

from ablate.noise.roots import brentq

FUNCTIONS: tuple[Callable[[float], float], ...] = (
    lambda x: x**3 - 2 * x - 5,
    lambda x: math.exp(x) - 1.1 - x / 3,
    lambda x: math.tanh(1e3 * (x - 0.3)),
    lambda x: x**5 + x - 1.25,
    lambda x: 1.0 if x > 1 / 3 else -1.0,
    lambda x: float(special.stdtr(3, x)) - 0.975,
)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("xtol", [2e-12, 1e-15, 1e-3])
def test_a_root_is_scipy_s_to_the_last_bit(function: Callable[[float], float], xtol: float) -> None:
    random, found = np.random.default_rng(0), 0
    for _ in range(200):
        low, high = np.sort(random.uniform(-4, 6, 2)).tolist()
        if function(low) * function(high) < 0:
            found += 1
            assert brentq(function, low, high, xtol) == optimize.brentq(function, low, high, xtol=xtol)
            assert brentq(function, high, low, xtol) == optimize.brentq(function, high, low, xtol=xtol)
    assert found > 20
    assert brentq(lambda x: x - 2, 2.0, 3.0) == brentq(lambda x: x - 2, 1.0, 2.0) == 2.0


def test_what_has_no_root_between_is_refused() -> None:
    with pytest.raises(ValueError, match="different signs"):
        brentq(lambda x: x**2 + 1, -1.0, 1.0)
    with pytest.raises(RuntimeError, match="no root"):
        brentq(lambda x: (x - 1.25) ** 9, -3.3, 4.1)


@pytest.mark.parametrize("freedom", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("p", [0.0, 1e-12, 0.025, 0.5, 0.975, 1.0])
def test_quantiles_and_tails_are_those_of_scipy_stats(p: float, freedom: int) -> None:
    value = 3.7 * p
    if not freedom:
        assert math.isnan(special.stdtrit(freedom, p)) and math.isnan(stats.t.isf(p, freedom))
        return
    assert -special.stdtrit(freedom, p) == stats.t.isf(p, freedom) or not p
    assert special.stdtr(freedom, -value) == stats.t.sf(value, freedom)
    assert special.chdtri(freedom, p) == stats.chi2.isf(p, freedom)
    assert 2 * special.gammaincinv(freedom / 2, p) == stats.chi2.ppf(p, freedom)
    assert special.chdtrc(freedom, value) == stats.chi2.sf(value, freedom)
    assert special.fdtri(1, freedom, 1 - p) == stats.f.isf(p, 1, freedom)
    assert special.fdtrc(2, freedom, value) == stats.f.sf(value, 2, freedom)
