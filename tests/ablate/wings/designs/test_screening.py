"""Effects against Montgomery's filtration-rate example, a regression, and error rates by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from ablate.wings.designs.factorial import Design, Effect, design
from ablate.wings.designs.factorial_effects import EffectTest, effect_tests
from reports.judge.statistics.estimates import Interval
from reports.judge.statistics.simultaneous import Correction, together
from tests.regression import Regression

FILTRATION = {"": 45, "ad": 100, "bd": 45, "ab": 65, "cd": 75, "ac": 60, "bc": 80, "abcd": 96}
"""Montgomery, example 8.1: the half fraction D = ABC of the filtration-rate experiment, by the factors at +."""
PUBLISHED = {"A": 19.0, "B": 1.5, "C": 14.0, "D": 16.5, "AB": -1.0, "AC": -18.5, "AD": 19.0}


@dataclass(frozen=True)
class Estimated:
    effect: Effect
    interval: Interval
    p: float
    p_corrected: float


def screen(
    plan: Design,
    losses: NDArray[np.float64],
    interactions: Sequence[Effect] = (),
    correction: Correction = "holm",
    *,
    tuned: bool = False,
) -> list[Estimated]:
    effects = [*((factor,) for factor in plan.factors), *interactions]
    tests: Sequence[EffectTest] = effect_tests([plan.contrast(each) for each in effects], losses, tuned=tuned)
    p_values, intervals = together([test.evidence(test.p) for test in tests], correction)
    found = zip(effects, intervals, tests, p_values, strict=True)
    return [Estimated(effect, interval, test.p, p) for effect, interval, test, p in found]


def test_effects_of_montgomery_s_half_fraction() -> None:
    half = design("ABCD", 8)
    rates = [FILTRATION["".join(n for n, level in zip("abcd", run, strict=True) if level > 0)] for run in half.levels]
    losses = np.array(rates)[:, None] + np.array([-0.1, 0.1]) + 0.01 * np.random.default_rng(0).normal(size=(8, 2))
    found = screen(half, losses, [("A", "B"), ("A", "C"), ("A", "D")])
    assert {"".join(each.effect): each.interval.value for each in found} == pytest.approx(PUBLISHED, abs=0.02)


def test_effects_and_errors_are_those_of_a_regression_with_seed_blocks() -> None:
    """Full design, all interactions: coefficients are half the effects."""
    full, draw = design("ABC", 8), np.random.default_rng(1)
    effects = [("A", "B"), ("A", "C"), ("B", "C"), ("A", "B", "C")]
    losses = draw.normal(0, 1, (8, 4)) + draw.normal(0, 5, 4)
    found = screen(full, losses, effects)
    columns = [np.repeat(full.contrast(each.effect), 4) for each in found]
    blocks = [np.tile(np.arange(4) == seed, 8).astype(float) for seed in range(4)]
    fit = Regression.of(losses.ravel(), np.column_stack([*columns, *blocks]))
    assert [each.interval.value for each in found] == pytest.approx(2 * fit.coefficients[:7])
    assert [each.p for each in found] == pytest.approx(fit.p_values[:7])


def test_error_from_contrasts_without_an_effect_is_that_of_a_regression_of_run_means() -> None:
    plan, draw = design("ABCDEF", 16), np.random.default_rng(6)
    losses = draw.normal(0, 1, (16, 3)) + draw.normal(0, 2, (16, 1))
    found = screen(plan, losses, tuned=True)
    fit = Regression.of(losses.mean(axis=1), np.column_stack([np.ones(16), plan.levels]))
    assert [each.p for each in found] == pytest.approx(fit.p_values[1:])


def rejected(p: list[float], correction: Correction) -> set[int]:
    """Hypotheses rejected as in the papers: Holm steps down until a p is too large, Benjamini and Hochberg up from the
    largest."""
    order, count = sorted(range(len(p)), key=lambda i: p[i]), len(p)
    if correction == "holm":
        failing = [step for step, i in enumerate(order) if p[i] > 0.05 / (count - step)]
        return set(order[: min(failing, default=count)])
    passing = [step for step, i in enumerate(order, start=1) if p[i] <= 0.05 * step / count]
    return set(order[: max(passing, default=0)])


@pytest.mark.parametrize("correction", ["holm", "benjamini_hochberg"])
def test_intervals_and_corrected_p_agree_with_the_step_procedures(correction: Correction) -> None:
    draw, plan = np.random.default_rng(2), design("ABCDEF", 16)
    for _ in range(40):
        strength = draw.choice([0.0, 0.2, 0.5], 6)
        losses = (plan.levels @ strength)[:, None] + draw.normal(0, 1, (16, 3))
        found = screen(plan, losses, correction=correction)
        expected = rejected([each.p for each in found], correction)
        assert {i for i, each in enumerate(found) if each.p_corrected < 0.05} == expected
        assert {i for i, each in enumerate(found) if each.interval.excludes(0.0)} == expected


def wrongly_named(studies: int, seed: int, correction: Correction) -> tuple[float, float]:
    """Shares over screens of seven choices in eight runs, two of which matter: any false name, and false among all."""
    plan, draw = design("ABCDEFG", 8), np.random.default_rng(seed)
    strength = np.array([0.0, 0.0, 0.0, 1.0, 0.0, -0.7, 0.0])
    any_wrong, false = 0, 0.0
    for _ in range(studies):
        losses = (plan.levels @ strength)[:, None] + draw.normal(0, 3, 3) + draw.normal(0, 1, (8, 3))
        named = np.array([each.p_corrected < 0.05 for each in screen(plan, losses, correction=correction)])
        wrong = int(named[strength == 0].sum())
        any_wrong += wrong > 0
        false += wrong / max(int(named.sum()), 1)
    return any_wrong / studies, false / studies


def test_screens_seldom_name_what_does_nothing() -> None:
    assert wrongly_named(100, 3, "holm")[0] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100)


@pytest.mark.slow
def test_error_rates_of_both_corrections() -> None:
    """2,000 screens: Holm keeps the family-wise error, Benjamini–Hochberg the false-discovery rate."""
    family_wise, _ = wrongly_named(2_000, 4, "holm")
    _, false_share = wrongly_named(2_000, 4, "benjamini_hochberg")
    print(f"Holm: family-wise {family_wise:.4f}; Benjamini-Hochberg: false-discovery rate {false_share:.4f}")
    error = 3 * math.sqrt(0.05 * 0.95 / 2_000)
    assert family_wise <= 0.05 + error
    assert false_share <= 0.05 + error


def named_among_tuned(studies: int, seed: int, *, tuned: bool) -> float:
    """Share of screens of seven choices that do nothing that name one, where runs differ by what tuning got wrong."""
    plan, draw = design("ABCDEFG", 16), np.random.default_rng(seed)
    wrong = 0
    for _ in range(studies):
        losses = draw.normal(0, 1, (16, 1)) + draw.normal(0, 1, (16, 3))
        wrong += any(each.p_corrected < 0.05 for each in screen(plan, losses, tuned=tuned))
    return wrong / studies


def test_noise_that_all_seeds_of_a_run_share_names_nothing() -> None:
    assert named_among_tuned(200, 7, tuned=False) > 0.3
    assert named_among_tuned(200, 7, tuned=True) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


@pytest.mark.slow
def test_intervals_of_effects_cover() -> None:
    """2,000 screens: all uncut intervals at once, by Holm's level, and each false-coverage rate."""
    plan, draw, studies = design("ABCD", 8), np.random.default_rng(5), 2_000
    strength, missed = np.array([0.4, -0.3, 0.8, 0.2]), 0.0
    for _ in range(studies):
        losses = (plan.levels @ strength)[:, None] + draw.normal(0, 1, 3) + draw.normal(0, 1, (8, 3))
        found = screen(plan, losses)
        missed += any(each.interval.excludes(2 * own) for each, own in zip(found, strength, strict=True))
    print(f"joint coverage {1 - missed / studies:.4f}")
    assert missed / studies <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)
