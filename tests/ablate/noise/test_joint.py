"""The joint distribution of several arms against one baseline, against scipy, tables and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ablate.noise.joint import Joint, any_wrong, level_of_each
from tests.regression import dunnett


@pytest.mark.parametrize(("tests", "freedom", "critical"), [(1, 10, 2.23), (2, 10, 2.57), (4, 10, 2.89), (9, 20, 2.95)])
def test_critical_values_are_those_of_dunnetts_table(tests: int, freedom: int, critical: float) -> None:
    """Two-sided, 5 %: Dunnett 1964, Biometrics 20:482, table II."""
    level = level_of_each(0.05, tests, Joint(freedom))
    assert stats.t.isf(level / 2, freedom) == pytest.approx(critical, abs=0.006)


@pytest.mark.parametrize("freedom", [2, 6, 30])
@pytest.mark.parametrize("tests", [2, 5])
def test_levels_are_those_of_a_multivariate_t(tests: int, freedom: int) -> None:
    level = level_of_each(0.04, tests, Joint(freedom))
    reach = [stats.t.isf(level / 2, freedom)] * tests
    shape = (np.eye(tests) + np.ones((tests, tests))) / 2
    inside = stats.multivariate_t(shape=shape, df=freedom, seed=1).cdf(reach, lower_limit=-np.array(reach))
    assert 1 - inside == pytest.approx(0.04, abs=2e-4)
    assert any_wrong(level, tests, Joint(freedom)) == pytest.approx(0.04, rel=1e-6)


@pytest.mark.parametrize("p", [1e-9, 1e-4, 0.2])
def test_corrected_p_values_are_those_of_an_adaptive_integral(p: float) -> None:
    assert any_wrong(p, 3, Joint(5)) == pytest.approx(dunnett([p, 1.0, 1.0], 5)[0], rel=1e-4)


@pytest.mark.parametrize("beyond", [0.0, 0.4, 3.0])
def test_what_documents_add_makes_tests_depend_less(beyond: float) -> None:
    """Simulated: each arm's mean has a part of its own that no seed reduces."""
    rng, arms, freedom = np.random.default_rng(7), 4, 8
    means = rng.normal(0, math.sqrt(0.5), (300_000, arms + 1))
    noise = np.sqrt(freedom / rng.chisquare(freedom, (300_000, 1)))
    found = abs(noise * (means[:, 1:] - means[:, :1]) + rng.normal(0, math.sqrt(beyond), (300_000, arms)))
    joint = Joint(freedom, beyond)
    reach = joint.reach(0.01)
    assert np.mean(found[:, 0] > reach) == pytest.approx(0.01, abs=0.001)
    assert np.mean((found > reach).any(axis=1)) == pytest.approx(any_wrong(0.01, arms, joint), abs=0.001)


def test_never_bolder_than_one_test_nor_more_cautious_than_bonferroni() -> None:
    for level in (1e-300, 1e-30, 1e-6, 0.02, 0.3, 1.0):
        for freedom in (1, 3, 40):
            for joint in (Joint(freedom), Joint(freedom, 1.0)):
                assert level <= any_wrong(level, 4, joint) <= min(1.0, 4 * level)
    assert any_wrong(0.01, 4) == 0.04
    assert level_of_each(0.05, 5) == 0.01
