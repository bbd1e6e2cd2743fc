"""Anytime-valid tests against quadrature over noncentral t-densities, and by simulation over many numbers of seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from ablate.planning.looks import looks
from reports.statistics.estimates import holm, paired_p
from reports.statistics.sequential import (
    EFFECT_VARIANCE,
    anytime_bounds,
    anytime_equivalence_p,
    anytime_interval,
    anytime_p,
    log_evidence,
    log_evidence_above,
)


def by_quadrature(x: np.ndarray, one_sided: bool) -> float:
    """∫ p(t | effect) / p(t | none) · N(effect; 0, g): the t-statistic is all that differences tell up to scale."""
    n, scale = len(x), math.sqrt(EFFECT_VARIANCE)
    t = float(stats.ttest_1samp(x, 0).statistic)

    def integrand(effect: float) -> float:
        ratio = stats.nct.pdf(t, n - 1, effect * math.sqrt(n)) / stats.t.pdf(t, n - 1)
        return float(ratio * stats.norm.pdf(effect, 0, scale))

    low = 0.0 if one_sided else -8 * scale
    value, _ = integrate.quad(integrand, low, 8 * scale, limit=400, points=[np.mean(x) / np.std(x, ddof=1)])
    return (2 if one_sided else 1) * float(value)


@pytest.mark.parametrize("n", [2, 3, 5, 9])
@pytest.mark.parametrize("effect", [-0.7, 0.0, 1.5])
def test_evidence_is_the_mixture_of_noncentral_t_densities(n: int, effect: float) -> None:
    x = 0.003 * np.random.default_rng(n).normal(effect, 1, n)
    assert math.exp(log_evidence(x)[-1]) == pytest.approx(by_quadrature(x, one_sided=False), rel=1e-5)
    assert math.exp(log_evidence_above(x)[-1]) == pytest.approx(by_quadrature(x, one_sided=True), rel=1e-5)


def test_one_seed_says_nothing_of_a_difference() -> None:
    np.testing.assert_allclose(log_evidence([[0.3], [-2.0]]), 0, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 6, 20])
@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_the_interval_holds_what_the_test_does_not_reject(n: int, alpha: float) -> None:
    draw = np.random.default_rng(2)
    for x in draw.normal(0.5, 1, (20, n)):
        mean, low, high = (float(value) for value in anytime_interval(x, alpha))
        if math.isinf(low):
            assert (log_evidence(x + 1e6)[-1] < math.log(1 / alpha)) and math.isinf(high)
            continue
        assert mean - low == pytest.approx(high - mean)
        for end in (low, high):
            assert log_evidence(x - end)[-1] == pytest.approx(math.log(1 / alpha))


@pytest.mark.parametrize("n", [2, 4, 12])
def test_bounds_hold_what_the_one_sided_tests_do_not_reject(n: int) -> None:
    x = np.random.default_rng(9).normal(0.5, 1, n)
    _, low, high = anytime_bounds(x, 0.05)
    if n == 2:
        assert math.isinf(low) and math.isinf(high)
        return
    assert log_evidence_above(x - low)[-1] == pytest.approx(math.log(20))
    assert log_evidence_above(high - x)[-1] == pytest.approx(math.log(20))


def test_equal_differences_have_no_p() -> None:
    assert np.isnan(anytime_p([[0.5, 0.5, 0.5], [0.0, 0.0, 0.0]])).all()
    assert np.isnan(anytime_equivalence_p([0.5, 0.5, 0.5], 1.0))


def first_hits(p: np.ndarray) -> float:
    return float((p < 0.05).any(axis=-1).mean())


def test_peeking_at_every_seed_keeps_the_error_rate_that_a_t_test_loses() -> None:
    x = np.random.default_rng(3).normal(0, 1, (4_000, 60))
    assert first_hits(np.exp(-log_evidence(x))) <= 0.05
    assert first_hits(np.stack([paired_p(x[:, :n]) for n in range(3, 61)], axis=-1)) > 0.25


def test_evidence_has_mean_one_where_there_is_no_difference() -> None:
    """Each side of the mean is heavy-tailed, so the mean is checked at few seeds, where evidence is bounded."""
    x = np.random.default_rng(4).normal(0, 1, (200_000, 4))
    evidence = np.exp(log_evidence(x))
    for n in (2, 3, 4):
        error = evidence[:, n - 1].std() / math.sqrt(len(x))
        assert evidence[:, n - 1].mean() == pytest.approx(1, abs=4 * error)


@pytest.mark.parametrize("shift", [0.0, -0.4])
def test_one_sided_evidence_is_seldom_large_where_the_mean_is_not_positive(shift: float) -> None:
    x = np.random.default_rng(5).normal(shift, 1, (4_000, 40))
    assert np.mean(log_evidence_above(x).max(axis=-1) >= math.log(20)) <= 0.05


def found_by_looks(x: np.ndarray) -> tuple[float, float]:
    """Share of studies that find something, and their seeds on average."""
    open_, seeds = np.ones(len(x), dtype=bool), np.zeros(len(x))
    for look in looks(3, x.shape[1]):
        seeds[open_] = look.seeds
        open_ &= paired_p(x[:, : look.seeds]) >= look.alpha
    return 1 - float(open_.mean()), float(seeds.mean())


def found_anytime(x: np.ndarray) -> tuple[float, float]:
    hits = log_evidence(x) >= math.log(1 / 0.05)
    hits[:, :2] = False
    seeds = np.where(hits.any(axis=-1), hits.argmax(axis=-1) + 1, x.shape[1])
    return float(hits.any(axis=-1).mean()), float(seeds.mean())


@pytest.mark.slow
def test_what_anytime_validity_costs_is_as_documented() -> None:
    """The docstring's table, from 40,000 studies per effect."""
    draw = np.random.default_rng(6)
    expected = {
        0.0: ((0.04, 17.6), (0.02, 17.8)),
        0.5: ((0.32, 16.3), (0.19, 16.6)),
        1.0: ((0.91, 11.9), (0.78, 12.3)),
        2.0: ((1.00, 6.3), (1.00, 6.2)),
        4.0: ((1.00, 4.3), (1.00, 4.3)),
    }
    for effect, documented in expected.items():
        x = draw.normal(effect, 1, (40_000, 18))
        for (found, seeds), (documented_found, documented_seeds) in zip(
            (found_by_looks(x), found_anytime(x)), documented, strict=True
        ):
            print(f"effect {effect} sd: found {found:.3f}, {seeds:.2f} seeds")
            assert found == pytest.approx(documented_found, abs=0.01)
            assert seeds == pytest.approx(documented_seeds, abs=0.15)


@pytest.mark.slow
def test_error_rates_and_coverage_hold_over_all_numbers_of_seeds_at_once() -> None:
    """10,000 studies of four arms, judged after every seed up to 100; arms share the baseline's losses."""
    losses = np.random.default_rng(7).normal(2.3, 0.01, (10_000, 5, 100))
    differences = losses[:, 1:] - losses[:, :1]
    smallest = np.exp(-log_evidence(differences)).min(axis=(1, 2))  # Holm's first step decides whether any is named
    wrong = float(np.mean(smallest * 4 < 0.05))
    truth, margin = 0.004, 0.02
    missed = float(np.mean(log_evidence(differences[:, 0]).max(axis=-1) >= math.log(20)))
    far = differences[:, 0] + margin
    inside = np.minimum(log_evidence_above(far + margin), log_evidence_above(margin - far))
    tied = float(np.mean(inside.max(axis=-1) >= math.log(20)))
    print(f"of 10,000: {wrong:.4f} name one of four alike, {missed:.4f} miss the truth, {tied:.4f} wrong ties")
    assert max(wrong, missed, tied) <= 0.05
    _, low, high = anytime_interval(differences[:, 0] + truth)
    assert np.mean((low < truth) & (truth < high)) >= 0.95


def test_arms_that_stop_when_they_are_named_keep_the_family_wise_error() -> None:
    """Every arm stops at the first seed at which Holm names it, given where the others stand."""
    draw, named = np.random.default_rng(8), 0
    for _ in range(300):
        losses = draw.normal(0, 1, (4, 20))
        p = np.minimum(1, np.exp(-log_evidence(losses[1:] - losses[0])))
        stopped = np.ones(3)
        for n in range(2, 20):
            current = np.where(stopped < 1, stopped, p[:, n])
            corrected = np.array(holm(current.tolist()))
            stopped = np.where((corrected < 0.05) & (stopped == 1), p[:, n], stopped)
        named += bool((stopped < 1).any())
    assert stats.binomtest(named, 300, 0.05, alternative="greater").pvalue > 0.01
