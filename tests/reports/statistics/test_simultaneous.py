"""Intervals against Holm's verdicts, for arbitrary data, and their coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from reports.judge.noise.difference import Difference
from reports.judge.statistics.simultaneous import Evidence, difference_intervals


def evidence(x: np.ndarray) -> Evidence:
    """An arm with these paired differences, as a t-test sees it."""
    found = Difference.of(float(x.mean()), float(stats.sem(x)), len(x) - 1)
    return Evidence(found.value, found.p(), found.interval)


def holm_rejects(p: list[float]) -> list[bool]:
    """Step by step, as Holm 1979 has it: stop at the first p that is not below its level."""
    rejected = [False] * len(p)
    for step, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[i] * (len(p) - step) >= 0.05:
            break
        rejected[i] = True
    return rejected


studies = st.tuples(st.integers(1, 6), st.integers(2, 8), st.integers(0, 10_000))


def drawn(arms: int, seeds: int, seed: int) -> np.ndarray:
    """Paired differences (arms, seeds) whose means are anything from none to many standard deviations."""
    draw = np.random.default_rng(seed)
    means = draw.choice([0.0, 0.5, -1.0, 3.0, -10.0], arms)
    return means[:, None] + draw.normal(0, 1, (arms, seeds))


@settings(max_examples=100, deadline=None)
@given(studies)
def test_an_interval_excludes_zero_exactly_where_holm_finds_a_difference(study: tuple[int, int, int]) -> None:
    differences = drawn(*study)
    tests = [evidence(x) for x in differences]
    rejected = holm_rejects([test.p for test in tests])
    for x, found, reject in zip(differences, difference_intervals(tests), rejected, strict=True):
        assert found.excludes(0.0) == reject
        assert found.low <= x.mean() <= found.high
        low, high = stats.t.interval(0.95, len(x) - 1, x.mean(), stats.sem(x))
        assert found.low <= low + 1e-9 and high - 1e-9 <= found.high


def test_one_arm_keeps_its_t_interval() -> None:
    x = np.array([0.2, 0.5, 0.3, 0.4])
    (found,) = difference_intervals([evidence(x)])
    expected = stats.ttest_1samp(x, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def coverage(means: list[float], studies: int, seeds: int = 4) -> tuple[float, float, float]:
    """Shares of studies: wrong exclusions of zero, a miss by any printed interval; and misses per printed interval."""
    draw, truth = np.random.default_rng(1), np.array(means)
    wrong, missed, each = 0, 0, np.zeros(len(means))
    for _ in range(studies):
        losses = draw.normal(0, 1, (len(means) + 1, seeds))
        differences = losses[1:] - losses[0] + truth[:, None]
        found = difference_intervals([evidence(x) for x in differences])
        misses = [interval.excludes(mean) for interval, mean in zip(found, means, strict=True)]
        wrong += any(i.excludes(0.0) and (m == 0 or i.value * m < 0) for i, m in zip(found, means, strict=True))
        missed += any(misses)
        each += misses
    return wrong / studies, missed / studies, float(each.max() / studies)


def test_a_null_arm_beside_a_sure_one_is_seldom_called_different() -> None:
    """Where Holm spends all of α on the null: 300 studies, within a binomial test at 0.1 %."""
    wrong, _, each = coverage([0.0, 30.0], 300)
    for share in (wrong, each):
        assert stats.binomtest(round(share * 300), 300, 0.05, alternative="greater").pvalue > 0.001


@pytest.mark.slow
@pytest.mark.parametrize(
    "means", [[0.0] * 4, [0.0, 30.0], [0.0, 30.0, -30.0, 30.0], [30.0, -30.0, 30.0], [0.0, 0.0, 2.0, -4.0]]
)
def test_coverage(means: list[float]) -> None:
    """4,000 studies each: what the docstring promises, within three standard errors."""
    studies = 4_000
    wrong, missed, each = coverage(means, studies)
    print(f"{means}: {wrong:.4f} wrong exclusions, {missed:.4f} joint misses, {each:.4f} misses of the worst arm")
    error = 3 * (0.05 * 0.95 / studies) ** 0.5
    assert wrong <= 0.05 + error
    assert each <= 0.05 + error
    assert missed <= 0.05 * (2 - 1 / len(means)) + error
    if 0.0 not in means or not any(means):
        assert missed <= 0.05 + error
