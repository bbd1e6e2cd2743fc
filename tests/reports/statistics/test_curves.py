"""Optima of rate curves against curves that are known, and how often identical arms are called different."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import interpolate, optimize

from reports.statistics.curves import Optimum, optimum
from reports.statistics.estimates import mean_interval, paired_p

RATES = np.array([1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2])


def loss(rates: np.ndarray, best: float, skew: float = 1.5) -> np.ndarray:
    """Least at `best`, where it is 2.0; 0.4 nats per squared decade of curvature, steeper above."""
    decades = np.log10(rates / best)
    return 2.0 + 0.4 * 2 * (np.exp(skew * decades) - 1 - skew * decades) / skew**2


def curve(draw: np.random.Generator, best: float, shared: np.ndarray, sd: float, rates: np.ndarray = RATES) -> Optimum:
    """An arm's optimum from runs with this noise, on top of what each seed does to all runs."""
    noisy = loss(rates, best)[:, None] + shared + draw.normal(0, sd, (len(rates), len(shared)))
    return optimum(dict(zip(rates.tolist(), noisy.tolist(), strict=True)))


def test_a_cubic_is_recovered_exactly() -> None:
    x = np.log(RATES)
    exact = interpolate.PPoly(np.array([[0.02], [0.3], [0.01], [2.5]]), [-6.0, 0.0], extrapolate=True)
    least = optimize.minimize_scalar(exact, bounds=(x[0], x[-1]), method="bounded", options={"xatol": 1e-10})
    found = optimum({float(rate): [float(exact(math.log(rate))), float(exact(math.log(rate))) + 0.1] for rate in RATES})
    assert found.reason is None
    assert found.rate == pytest.approx(math.exp(least.x), rel=1e-6)
    assert found.by_seed == pytest.approx((least.fun, least.fun + 0.1))


def test_the_optimum_lies_between_the_rates_that_were_tried() -> None:
    found = curve(np.random.default_rng(0), 3e-3, np.zeros(3), 0.0)
    assert found.rate == pytest.approx(3e-3, rel=0.03)
    assert found.by_seed == pytest.approx([2.0] * 3, abs=5e-4)


@pytest.mark.parametrize(
    ("best", "rate", "words"),
    [(2e-4, 1e-3, "not bracketed: the lowest rate tried, 0.001, is"), (0.2, 1.6e-2, "the highest rate tried, 0.016")],
)
def test_an_optimum_beyond_the_rates_is_said_to_be(best: float, rate: float, words: str) -> None:
    found = curve(np.random.default_rng(0), best, np.zeros(2), 0.0)
    assert found.rate == rate
    assert found.by_seed == pytest.approx([float(loss(np.array([rate]), best)[0])] * 2)
    assert found.reason is not None and words in found.reason


def test_rates_at_which_a_seed_diverged_are_left_out() -> None:
    table = dict(zip(RATES.tolist(), np.stack([loss(RATES, 3e-3)] * 2, axis=1).tolist(), strict=True))
    assert optimum(table | {1.6e-2: [2.5, math.inf]}).reason is None
    found = optimum(table | {8e-3: [math.nan, 2.1], 1.6e-2: [math.inf, math.inf]})
    assert found.rate == 4e-3
    assert found.reason is not None and "fewer than 4" in found.reason
    with pytest.raises(ValueError, match="diverged"):
        optimum({1e-3: [math.inf, 2.0]})


def test_three_rates_are_too_few() -> None:
    assert optimum({1e-3: [2.2], 2e-3: [2.0], 4e-3: [2.1]}).reason == "fewer than 4 rates were tried"


def differences(draw: np.random.Generator, factor: float, sd: float, seeds: int, rates: np.ndarray) -> np.ndarray:
    """Paired differences of two arms with the same least loss, at rates that differ by `factor`."""
    best, shared = 10 ** draw.uniform(-2.6, -2.2), draw.normal(0, 0.02, seeds)
    pair = (curve(draw, best, shared, sd, rates), curve(draw, best * factor, shared, sd, rates))
    return np.subtract(pair[0].by_seed, pair[1].by_seed)


def by_argmin(draw: np.random.Generator, factor: float, sd: float, seeds: int) -> np.ndarray:
    """The same by the rate that is best in one tuning seed, judged on fresh seeds."""
    best = 10 ** draw.uniform(-2.6, -2.2)
    tuned = []
    for own in (best, best * factor):
        chosen = RATES[(loss(RATES, own) + draw.normal(0, sd, len(RATES))).argmin()]
        tuned.append(loss(np.array([chosen]), own) + draw.normal(0, sd, seeds))
    return tuned[0] - tuned[1]


def test_the_argmin_of_one_tuning_seed_calls_equal_arms_different_and_curves_seldom_do() -> None:
    draw, studies = np.random.default_rng(1), 400
    tuned = paired_p(np.array([by_argmin(draw, 1.4, 0.005, 5) for _ in range(studies)]))
    curves = paired_p(np.array([differences(draw, 1.4, 0.005, 3, RATES) for _ in range(studies)]))
    assert np.mean(tuned < 0.05) > 0.2
    assert np.mean(curves < 0.05) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("sd", [0.005, 0.05])
@pytest.mark.parametrize("factor", [1.0, 1.4])
def test_error_rates_and_coverage(factor: float, sd: float, seeds: int) -> None:
    """2,000 studies of two arms with the same least loss, verdicts on optima that are not bracketed included."""
    draw, studies = np.random.default_rng(2), 2_000
    found = np.array([differences(draw, factor, sd, seeds, RATES) for _ in range(studies)])
    tuned = paired_p(np.array([by_argmin(draw, factor, sd, seeds) for _ in range(studies)]))
    wrong = np.mean(paired_p(found) < 0.05)
    _, low, high = mean_interval(found)
    print(f"factor {factor}, sd {sd}, {seeds} seeds: curves {wrong:.4f}, argmin {np.mean(tuned < 0.05):.4f}")
    assert wrong <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
    assert np.mean((low < 0) & (high > 0)) == pytest.approx(1 - wrong)


@pytest.mark.slow
def test_flat_curves_are_not_called_different() -> None:
    """Where the rate does not matter the best one is noise and often not bracketed."""
    draw, studies, wrong = np.random.default_rng(3), 2_000, 0
    for _ in range(studies):
        own, base = (optimum(dict(zip(RATES, draw.normal(2, 0.01, (5, 3)), strict=True))) for _ in range(2))
        wrong += bool(paired_p(np.subtract(own.by_seed, base.by_seed)) < 0.05)
    print(f"flat: {wrong / studies:.4f}")
    assert wrong / studies <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
