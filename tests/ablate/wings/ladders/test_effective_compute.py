"""Effective compute: against scipy's optimiser, and power laws that are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats

from ablate.wings.ladders.effective_compute import (
    EXPONENT,
    EXPONENT_ERROR,
    EXPONENTS,
    Budget,
    EffectiveCompute,
    Shifted,
    effective_compute,
    exp,
    noise_of,
    worth,
)
from tests.many import few

Floats = NDArray[np.float64]
LAWS = ((1.7, 1.5, 0.15), (0.0, 3.2, 0.05), (2.0, 1.0, 0.35))
"""(E, A, b) with compute in units of the largest budget: with an irreducible loss and without, flat and steep."""


def ladder(
    rng: int | np.random.Generator = 0,
    factors: Sequence[float] = (1.1,),
    sizes: int = 4,
    seeds: int = 1,
    noise: float = 1.5e-3,
    law: tuple[float, float, float] = LAWS[0],
    common: float = 0.0,
    trend: float = 0.0,
) -> dict[str, list[Budget]]:
    """A baseline, and arms whose compute counts by a factor at the largest size. common: share of the variance that
    runs of one size and seed have in common; trend: factor per tenfold compute, as a power of ten."""
    draw = np.random.default_rng(rng)
    floor, scale, exponent = law
    shared = draw.standard_normal((sizes, seeds))
    found: dict[str, list[Budget]] = {}
    for place, factor in enumerate((1.0, *factors)):
        name = f"arm {place}" if place else "base"
        found[name] = []
        for size in range(sizes):
            compute = 4.0 ** float(size - sizes + 1)
            worth_of = compute * (factor * compute**trend if place else 1.0)
            own = math.sqrt(common) * shared[size] + math.sqrt(1 - common) * draw.standard_normal(seeds)
            losses = (floor + scale * worth_of**-exponent) * (1 + noise * own)
            found[name].append(Budget(f"s{size}", 1e20 * compute, dict(enumerate(losses.tolist()))))
    return found


def only(arms: dict[str, list[Budget]], sigma: float | None = None) -> EffectiveCompute:
    (found,) = effective_compute(arms, "base", sigma)
    return found


def theirs(arms: dict[str, list[Budget]], sd: float, log_factor: float | None = None) -> tuple[float, float]:
    """(least squares, ln f) by scipy from many starts, with ln f fixed or not: the baseline's means, the arm's
    differences from them, and what is known of the exponent."""
    base, arm = arms["base"], arms["arm 1"]
    log_c = np.log([each.flops / base[-1].flops for each in base])
    mean, other = (np.array([each.mean for each in of]) for of in (base, arm))
    n = np.array([len(each.losses) for each in base])

    def residuals(parameters: Floats) -> Floats:
        floor, scale, log_b = parameters[0] ** 2, parameters[1] ** 2, parameters[2]
        shift = parameters[3] if log_factor is None else log_factor
        curve, moved = (floor + scale * np.exp(-math.exp(log_b) * (log_c + by)) for by in (0.0, shift))
        return np.concatenate(
            [
                (mean - curve) / (sd * mean) * np.sqrt(n),
                (other - mean - (moved - curve)) / (sd * other) * np.sqrt(n / 2),
                [(log_b - math.log(EXPONENT)) / EXPONENT_ERROR],
            ]
        )

    starts = ((e, math.sqrt(a), b, 0.1) for e in (0.3, 1.3) for a in (0.5, 1.5, 3.0) for b in (-2.5, -1.6, -1.0))
    bounds = ([-9, -9, math.log(EXPONENTS[0]), -4], [9, 9, math.log(EXPONENTS[-1]), 4])
    how: dict[str, Any] = {"bounds": bounds, "x_scale": "jac", "xtol": 1e-12, "ftol": 1e-12}
    found = [optimize.least_squares(residuals, start, **how) for start in starts]
    best = min(found, key=lambda each: each.cost)
    return 2 * float(best.cost), float(best.x[3])


@pytest.mark.parametrize("sizes", few([3, 2], 1))
def test_factor_and_interval_are_those_of_scipy(sizes: int) -> None:
    arms = ladder(sizes, sizes=sizes, seeds=3)
    squares = [(value / each.mean - 1) ** 2 for of in arms.values() for each in of for value in each.losses.values()]
    freedom = 2 * sizes * 2
    sd = math.sqrt(sum(squares) / freedom)
    noise = noise_of(arms, "arm 1", "base")
    assert noise is not None
    assert (noise.sd, noise.freedom, noise.share) == (pytest.approx(sd), freedom, 1.0)
    shifted = Shifted.of(arms["base"], arms["arm 1"], noise)
    least, value = theirs(arms, sd)
    assert shifted.best == (pytest.approx(least, abs=1e-2), pytest.approx(value, abs=2e-3))  # b is on a grid
    assert shifted.p == pytest.approx(float(stats.f.sf(theirs(arms, sd, 0.0)[0] - least, 1, freedom)), rel=0.02)
    more = float(stats.f.isf(0.05, 1, freedom))
    found = shifted.interval()
    for end in (found.low, found.high):
        assert theirs(arms, sd, end)[0] - least == pytest.approx(more, rel=0.01)


def test_one_is_rejected_just_where_a_t_test_rejects_equal_losses() -> None:
    """With one budget of the arm, f = 1 is the same hypothesis as no difference."""
    arms = ladder(7, sizes=2, seeds=4, factors=(1.05,))
    arms["arm 1"] = arms["arm 1"][1:]
    noise = noise_of(arms, "arm 1", "base")
    assert noise is not None
    base, arm = arms["base"][1], arms["arm 1"][0]
    t = (arm.mean - base.mean) / (noise.sd * arm.mean * math.sqrt(2 / 4))
    p = 2 * stats.t.sf(abs(t), noise.freedom)
    assert only(arms).p == pytest.approx(p, rel=1e-3)


def test_noise_is_said_to_be_that_of_seeds_or_misfit_or_sigma() -> None:
    def origin(arms: dict[str, list[Budget]], sigma: float | None = None) -> str:
        noise = only(arms, sigma).noise
        return noise.origin if noise else ""

    assert origin(ladder(seeds=2)) == "runs that differ in their seed"
    assert origin(ladder()) == "the misfit of the joint curve"
    assert origin(ladder(), 0.003) == "the misfit of the joint curve and the given sigma"
    one = ladder()
    one["arm 1"] = one["arm 1"][-1:]
    assert origin(one, 0.003) == "the given sigma"
    assert only(one).factor is None
    assert only(one).reason.startswith("the noise is unknown")


def test_the_misfit_is_the_interaction_of_arms_and_sizes() -> None:
    """Where each arm's difference has the same factor, what is left is as an analysis of variance has it."""
    arms = ladder(3, factors=(1.0, 1.0, 1.0), sizes=4)
    table = np.array([[each.mean for each in of] for of in arms.values()])
    table = table / table.mean(axis=0)
    left = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    x = np.arange(4) - 1.5  # a trend of each arm beside the baseline's, which is left out as well
    slopes = (table - table[0]) @ x / (x @ x)
    left -= np.outer(slopes - slopes.mean(), x)
    noise = noise_of(arms, "arm 1", "base")
    assert noise is not None
    assert noise.freedom == 3 * 2
    assert noise.sd == pytest.approx(math.sqrt(np.square(left).sum() / 6), rel=0.05)


def test_what_a_size_has_in_common_cancels() -> None:
    apart, together = (only(ladder(5, seeds=3, common=share)).factor for share in (0.0, 0.95))
    assert apart is not None and together is not None
    assert math.log(together.high / together.low) < math.log(apart.high / apart.low) / 2


def test_without_a_curve_there_is_a_reason() -> None:
    one = {name: of[-1:] for name, of in ladder(seeds=3).items()}
    assert "a single budget" in only(one).reason
    rising = ladder(seeds=3)
    rising["base"] = [Budget(each.name, 1 / each.flops, each.losses) for each in rising["base"]]
    assert "does not fall" in only(rising).reason
    gone = ladder(seeds=3) | {"arm 1": []}
    assert only(gone).reason == "no run of arm 1 has a finite loss"


def test_a_pinned_curve_judges_an_arm_at_a_budget_of_its_own() -> None:
    """The arm's only run is between two sizes of the curve."""
    arms = ladder(0, noise=1e-5, seeds=2)
    floor, scale, exponent = LAWS[0]
    loss = floor + scale * (1.3 * 0.4) ** -exponent
    arms["arm 1"] = [Budget("its own", 0.4e20, {0: loss})]
    found = only(arms).factor
    assert found is not None
    assert found.value == pytest.approx(1.3, rel=0.01)


def test_worth_is_the_compute_that_the_law_needs() -> None:
    _, scale, exponent = LAWS[0]
    curve = ladder(0, noise=0.0, seeds=1)["base"]
    needed = ((scale - 0.01) / scale) ** (-1 / exponent)  # E + A·f^(−b) = E + A − 0.01
    found = worth(curve, 0.01)
    assert found is not None
    assert found.value == pytest.approx(needed, rel=2e-3)
    assert found.low < needed < found.high < 1.15
    few = worth(curve[-2:], 0.01)
    assert few is not None
    assert few.low < needed < few.high
    assert few.high - few.low > found.high - found.low


def counted(studies: int, sizes: int, seeds: int, **kinds: Any) -> dict[str, float]:
    """Shares of intervals that have the factor, and of arms that are said to change, by the arm's trend."""
    covered, changed = 0, 0
    for number in range(studies):
        arms = ladder(1000 * sizes + 100 * seeds + number, sizes=sizes, seeds=seeds, law=LAWS[number % 3], **kinds)
        noise = noise_of(arms, "arm 1", "base")
        assert noise is not None
        found = exp(Shifted.of(arms["base"], arms["arm 1"], noise).interval())
        covered += found.low <= 1.15 <= found.high
        if "trend" in kinds:
            changed += bool(effective_compute(arms, "base")[0].changes == "shrinks")
    return {"covered": covered / studies, "changed": changed / studies}


def test_intervals_cover_in_a_few_ladders() -> None:
    """The slow test's promise on so few that a share of 80 % would be noticed."""
    assert counted(60, 3, 2, factors=(1.15,))["covered"] > 0.87


@pytest.mark.slow
@pytest.mark.parametrize("noise", [4e-4, 2.4e-3], ids=["a speed-run's noise", "the demo's noise"])
@pytest.mark.parametrize("common", [0.0, 0.7])
@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.parametrize("sizes", [2, 3, 4])
def test_intervals_cover(sizes: int, seeds: int, common: float, noise: float) -> None:
    """At least 93 %, within binomial error, for laws with an irreducible loss and without."""
    studies = 300
    found = counted(studies, sizes, seeds, factors=(1.15, 1.0), common=common, noise=noise)["covered"]
    print(f"{sizes} sizes, {seeds} seeds, {common} in common, noise {noise}: {found:.3f}")
    assert stats.binomtest(round(found * studies), studies, 0.93, alternative="less").pvalue > 0.01


@pytest.mark.slow
def test_an_advantage_that_shrinks_is_said_to() -> None:
    found = only(ladder(2, factors=(1.0,), trend=-0.2, noise=5e-4, seeds=2))
    assert only(ladder(1, factors=(1.0,), trend=-0.2, noise=2e-4)).changes == "shrinks"  # one seed at four sizes
    assert found.changes == "shrinks"
    assert found.trend is not None
    assert found.trend[0].low < 10**-0.2 < found.trend[0].high
    assert found.by_budget[-1][1].low < 1 < found.by_budget[-1][1].high < found.by_budget[0][1].low


@pytest.mark.slow
@pytest.mark.parametrize(("trend", "least", "most"), [(0.0, 0.0, 0.05), (-0.15, 0.6, 1.0)])
def test_changes_with_compute(trend: float, least: float, most: float) -> None:
    """Sixty of them, at half a second each: enough to notice a rate of 15 % in place of 5 %."""
    studies = 60
    found = counted(studies, 4, 2, factors=(1.15,), trend=trend)["changed"]
    print(f"trend {trend}: {found:.3f}")
    assert found > least or not least
    assert stats.binomtest(round(found * studies), studies, most, alternative="greater").pvalue > 0.01
