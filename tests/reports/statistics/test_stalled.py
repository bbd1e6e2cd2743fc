"""Failed seeds: the bound against scipy's, which verdicts they leave, and how often these are false."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ablate.wings.compare.losses import ArmContrast, ArmLosses, judge, noise_of
from reports.judge.statistics.estimates import Failures, failure_rate_bound
from store.documents import ReferenceLosses

BYTES = ReferenceLosses(uniform=math.log(256), unigram=3.2, bigram=2.5, gzip=2.4, gzip_bits_per_byte=3.4)


def judged(arm: np.ndarray, baseline: np.ndarray) -> ArmContrast:
    """The contrast of two arms, whose failed runs have infinite losses."""
    arms = [ArmLosses(name, dict(enumerate(of.tolist())), {}) for name, of in (("arm", arm), ("base", baseline))]
    (found,) = judge(arms, [("arm", "base")], noise_of(arms))
    return found


@pytest.mark.parametrize(
    ("loss", "outcome"),
    [
        (2.3, "trained"),
        (3.09, "trained"),
        (3.11, "stalled"),
        (4.0, "stalled"),
        (5.6, "diverged"),
        (math.nan, "diverged"),
    ],
)
def test_outcomes(loss: float, outcome: str) -> None:
    assert BYTES.outcome(loss) == outcome


@pytest.mark.parametrize("runs", [1, 3, 8, 29])
def test_the_bound_is_scipy_s_clopper_pearson(runs: int) -> None:
    for alpha in (0.05, 0.01):
        expected = stats.binomtest(0, runs).proportion_ci(1 - 2 * alpha, method="exact").high
        assert failure_rate_bound(runs, alpha) == pytest.approx(expected)
    assert failure_rate_bound(runs) == failure_rate_bound(runs, 0.05)


def test_29_runs_without_a_failure_exclude_a_tenth() -> None:
    assert failure_rate_bound(29) <= 0.1 < failure_rate_bound(28)


def test_a_failure_of_either_arm_counts() -> None:
    assert [Failures(*each).any for each in ((0, 0), (1, 0), (0, 2))] == [False, True, True]


GOOD = np.array([2.31, 2.30, 2.32, 2.305, 2.315])
LOW, HIGH = np.array([2.11, 2.12, 2.10, 2.105, 2.117]), np.array([2.51, 2.52, 2.50, 2.505, 2.517])


def failing(losses: np.ndarray, *seeds: int) -> np.ndarray:
    return np.where(np.isin(range(len(losses)), seeds), math.inf, losses)


@pytest.mark.parametrize(
    ("arm", "baseline", "verdict"),
    [
        (LOW, GOOD, "better"),
        (HIGH, GOOD, "worse"),
        (failing(LOW, 4), GOOD, "inconclusive"),
        (failing(HIGH, 4), GOOD, "worse"),
        (LOW, failing(GOOD, 0), "better"),
        (HIGH, failing(GOOD, 0), "inconclusive"),
        (failing(LOW, 4), failing(GOOD, 4), "inconclusive"),
        (failing(HIGH, 2, 4), failing(GOOD, 4), "inconclusive"),
        (failing(GOOD, 0, 1, 2, 3, 4), GOOD, "diverged"),
    ],
)
def test_which_verdicts_failures_leave(arm: np.ndarray, baseline: np.ndarray, verdict: str) -> None:
    assert judged(arm, baseline).verdict == verdict


def test_of_arms_that_fail_in_a_tenth_of_seeds_those_are_better_in_which_none_happened_to() -> None:
    """What they gain where they train is what failures cost: 0.9^n are called better, and no rule can know."""
    draw, studies, seeds = np.random.default_rng(0), 300, 3
    fails = draw.random((studies, seeds)) < 0.1
    arms = np.where(fails, math.inf, draw.normal(2.08, 0.01, (studies, seeds)))
    better = [judged(arm, draw.normal(2.3, 0.01, seeds)).verdict == "better" for arm in arms]
    assert better == (~fails.any(axis=1)).tolist()
    assert np.mean(better) == pytest.approx(0.9**3, abs=0.06)


@pytest.mark.parametrize(
    ("seeds", "studies"),
    [(5, 300), *(pytest.param(seeds, 2_000, marks=pytest.mark.slow) for seeds in (3, 5, 10, 30))],
)
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_arms_that_fail_equally_often_are_seldom_told_apart(seeds: int, studies: int, rate: float) -> None:
    draw = np.random.default_rng(1)
    losses = np.where(draw.random((studies, 2, seeds)) < rate, math.inf, draw.normal(2.3, 0.01, (studies, 2, seeds)))
    wrong = sum(judged(*each).verdict in ("better", "worse") for each in losses)
    print(f"{seeds} seeds, failing {rate:.0%}: {wrong} of {studies}")
    assert stats.binomtest(wrong, studies, 0.05, alternative="greater").pvalue > 0.001
