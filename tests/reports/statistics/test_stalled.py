"""Failed seeds: bounds against scipy's, the rule's limits as documented, and by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from ablate.noise.difference import Difference, seed_difference
from ablate.store.documents import ReferenceLosses
from reports.statistics.estimates import mean_interval
from reports.statistics.interval import Interval
from reports.statistics.stalled import FailureRates, Reliability

BYTES = ReferenceLosses(uniform=math.log(256), unigram=3.2, bigram=2.5, gzip=2.4, gzip_bits_per_byte=3.4)


def compare(arm: Sequence[float], baseline: Sequence[float]) -> tuple[FailureRates, list[float]]:
    """FailureRates, and the differences of the seeds that trained in both."""
    kept = [[loss for loss in losses if BYTES.outcome(loss) == "trained"] for losses in (arm, baseline)]
    own, theirs = (
        Reliability(len(losses) - len(good), len(losses), BYTES.uniform - float(np.mean(good)) if good else None)
        for losses, good in zip((arm, baseline), kept, strict=True)
    )
    pairs = zip(arm, baseline, strict=True)
    return FailureRates(own, theirs), [a - b for a, b in pairs if {BYTES.outcome(a), BYTES.outcome(b)} == {"trained"}]


def gap(differences: Sequence[float]) -> Difference | None:
    """With the noise of these alone."""
    return seed_difference(np.array(differences), None)


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


@pytest.mark.parametrize(("failed", "runs"), [(0, 3), (1, 8), (5, 9), (3, 3)])
def test_the_bound_is_scipy_s_clopper_pearson(failed: int, runs: int) -> None:
    expected = stats.binomtest(failed, runs).proportion_ci(0.9, method="exact").high
    assert Reliability(failed, runs).at_most(0.05) == pytest.approx(expected)
    if not failed:
        assert Reliability(failed, runs).at_most() == pytest.approx(1 - 0.05 ** (1 / runs))


def test_29_runs_without_a_failure_exclude_a_tenth() -> None:
    assert Reliability(0, 29).at_most() <= 0.1 < Reliability(0, 28).at_most()


def test_failed_seeds_are_left_out_of_the_difference_and_counted() -> None:
    found, differences = compare([2.0, 3.2, 2.1, 2.3], [2.2, 2.2, 2.4, 2.4])
    assert (found.arm.failed, found.arm.runs, found.baseline.failed, found.baseline.runs) == (1, 4, 0, 4)
    overall = found.overall(gap(differences))
    assert overall is not None
    wider = stats.ttest_rel([2.0, 2.1, 2.3], [2.2, 2.4, 2.4]).confidence_interval(0.975)
    most = stats.binomtest(1, 4).proportion_ci(0.975, method="exact").high
    assert overall.high == pytest.approx(wider.high + most * (math.log(256) - np.mean([2.0, 2.1, 2.3])))
    least = 1 - 0.0125**0.25
    assert overall.low == pytest.approx(wider.low - least * (math.log(256) - np.mean([2.2, 2.2, 2.4, 2.4])))


def test_an_arm_that_always_fails_has_no_difference() -> None:
    found, differences = compare([3.2] * 6, [2.2] * 6)
    assert found.overall(gap(differences)) is None
    assert not found.may_be_better


def test_an_arm_with_fewer_seeds_is_not_worse_than_a_baseline_that_failed_more_often() -> None:
    assert FailureRates(Reliability(1, 3), Reliability(2, 8)).may_be_worse
    assert not FailureRates(Reliability(0, 3), Reliability(1, 8)).may_be_worse


def test_which_words_failures_leave() -> None:
    good, failed, twice = [2.0, 2.1, 2.2, 2.3], [2.0, 2.1, 2.2, 3.2], [2.0, 2.1, math.inf, 3.2]

    def words(arm: list[float], baseline: list[float]) -> tuple[bool, bool, bool]:
        found, _ = compare(arm, baseline)
        return found.may_be_better, found.may_be_worse, found.may_be_alike

    assert words(good, good) == (True, True, True)
    assert words(failed, good) == (False, True, False)
    assert words(good, failed) == (True, False, False)
    assert words(failed, twice) == (False, False, False)
    assert words(twice, failed) == (False, True, False)


def losses(draw: np.random.Generator, studies: int, seeds: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """An arm that fails at `rate` and costs 2 nats then; what it gains where it trains makes the means equal."""
    baseline = draw.normal(2.3, 0.01, (studies, seeds))
    trained = draw.normal(2.3 - 2 * rate / (1 - rate), 0.01, (studies, seeds))
    return np.where(draw.random((studies, seeds)) < rate, draw.normal(4.3, 0.01, (studies, seeds)), trained), baseline


@pytest.mark.parametrize(("seeds", "called"), [(3, 0.72), (5, 0.59), (10, 0.35), (20, 0.12), (30, 0.05)])
def test_a_t_test_over_all_seeds_calls_an_arm_that_stalls_better(seeds: int, called: float) -> None:
    """The docstring's first row: it is the share of studies in which no seed happened to stall."""
    arm, baseline = losses(np.random.default_rng(0), 4_000, seeds, 0.1)
    better = (stats.ttest_rel(arm, baseline, axis=1).pvalue < 0.05) & (arm.mean(axis=1) < baseline.mean(axis=1))
    assert better.mean() == pytest.approx(called, abs=0.025)
    assert better.mean() >= 0.9**seeds - 0.025


def overall_errors(seeds: int, rate: float, studies: int) -> tuple[float, float, float]:
    """Shares of studies: called better overall, overall interval misses, interval of runs that train misses."""
    arms, baselines = losses(np.random.default_rng(1), studies, seeds, rate)
    better = missed = missed_trained = 0
    for arm, baseline in zip(arms, baselines, strict=True):
        found, differences = compare(arm.tolist(), baseline.tolist())
        overall = found.overall(gap(differences))
        if overall is None:
            continue
        better += overall.high < 0
        missed += overall.excludes(0.0)
        missed_trained += Interval(*map(float, mean_interval(differences))).excludes(-2 * rate / (1 - rate))
    return better / studies, missed / studies, missed_trained / studies


def test_the_overall_interval_is_not_taken_in() -> None:
    better, missed, trained = overall_errors(5, 0.1, 200)
    assert max(better, missed) == 0
    assert trained <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("seeds", [3, 10, 30])
def test_error_rates_with_failures(seeds: int, rate: float) -> None:
    """2,000 studies each. The overall interval is conservative: failures may cost up to ln V."""
    better, missed, trained = overall_errors(seeds, rate, 2_000)
    print(f"{seeds} seeds, failing {rate:.0%}: better {better:.4f}, overall {missed:.4f}, where trained {trained:.4f}")
    error = 3 * math.sqrt(0.05 * 0.95 / 2_000)
    assert max(better, missed) <= 0.05 + error
    assert trained <= 0.05 + error
