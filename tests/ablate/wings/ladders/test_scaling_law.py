"""Power laws with an irreducible loss: against scipy's optimiser, and laws that are known."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats

from ablate.wings.ladders.scaling_law import ScalingLaw, fit

Floats = NDArray[np.float64]


def losses(
    draw: np.random.Generator, sizes: int, seeds: int, floor: float, noise: float = 0.003
) -> tuple[Floats, Floats, Floats]:
    """Computes, true losses 8·C^(−0.3) over a floor, and what runs get: seeds shift all of theirs alike."""
    flops = 7.0 ** np.arange(sizes)
    true = floor + 8 * flops**-0.3
    shift, rest = draw.standard_normal(seeds), draw.standard_normal((sizes, seeds))
    return flops, true, true[:, None] * np.exp(0.003 * shift + noise * rest)


def theirs(law: ScalingLaw, fixed: tuple[float, float] | None = None) -> float:
    """The least squares by scipy from many starts, with the loss at a compute fixed or not."""
    flops, means = np.array(law.flops), np.array(law.means)

    def residuals(parameters: Floats) -> Floats:
        scale, exponent, floor = np.exp(parameters)
        if fixed is not None:
            floor = fixed[1] - (0.0 if math.isinf(fixed[0]) else scale * fixed[0] ** -exponent)
        left = (means - floor - scale * flops**-exponent) / (law.noise * means / math.sqrt(law.seeds))
        return np.append(left, 1e6 * min(floor, 0.0))

    starts = ((a, b, e) for a in (1.0, 2.0) for b in (-2.0, -1.0, 0.0) for e in (-3.0, 0.0, 0.5))
    found = (optimize.least_squares(residuals, start, x_scale="jac") for start in starts)
    return min(2 * each.cost for each in found)


@pytest.mark.parametrize("sizes", [4, 5])
def test_fit_and_interval_are_those_of_scipy(sizes: int) -> None:
    """At the ends of an interval the least squares exceed those of the best law by F."""
    flops, _, table = losses(np.random.default_rng(sizes), sizes, 4, 1.7)
    law = fit(flops, table)
    best, more = theirs(law), float(stats.f.isf(0.05, 1, 3 * (sizes - 1)))
    assert law.best[0] == pytest.approx(best, abs=1e-3)
    floor = law.irreducible()
    own = stats.t.isf(0.025, 3) * law.shift * floor.value / 2
    for end in (floor.low, floor.high):
        profiled = math.sqrt((end - floor.value) ** 2 - own**2)  # what seeds do to all sizes is added in quadrature
        at = floor.value + math.copysign(profiled, end - floor.value)
        assert theirs(law, (math.inf, at)) - best == pytest.approx(more, rel=0.02)


def test_lack_of_fit_needs_four_sizes_and_finds_a_bend() -> None:
    flops, _, table = losses(np.random.default_rng(0), 4, 4, 1.7)
    assert fit(flops[:3], table[:3]).lack_of_fit is None
    assert not fit(flops[:3], table[:3]).determined
    bent = table.copy()
    bent[1] *= 1.02
    p = fit(flops, bent).lack_of_fit
    assert p is not None
    assert p < 0.01
    assert fit(flops, bent).reach == 1.0
    assert fit(flops, table).reach == pytest.approx(7.0)


@pytest.mark.parametrize("table", [np.ones((2, 3)), np.ones((3, 1)), np.full((3, 2), np.nan), np.ones((3, 3))])
def test_too_little_to_fit_is_refused(table: Floats) -> None:
    with pytest.raises(ValueError, match="needs"):
        fit(np.arange(1.0, len(table) + 1), table)


STUDIES = 150


def counted(sizes: int, floor: float, seeds: int) -> Counter[str]:
    """Count how often intervals contain the true value, and how often a law that holds is refused."""
    draw, found = np.random.default_rng(0), Counter[str]()
    for _ in range(STUDIES):
        flops, true, table = losses(draw, sizes, seeds, floor)
        law = fit(flops, table)
        b, e, top = law.exponent(), law.irreducible(), law.loss(flops[-1])
        found["exponent"] += b.low <= 0.3 <= b.high
        found["floor"] += e.low <= floor <= e.high
        found["loss"] += top.low <= true[-1] <= top.high
        found["lack of fit"] += law.lack_of_fit is not None and law.lack_of_fit < 0.05
        if law.determined:
            beyond = law.loss(7 * flops[-1])
            found["determined"] += 1
            found["beyond"] += beyond.low <= floor + 8 * (7 * flops[-1]) ** -0.3 <= beyond.high
    return found


@pytest.mark.slow
@pytest.mark.parametrize("floor", [0.0, 1.7])
@pytest.mark.parametrize("sizes", [3, 4])
def test_intervals_cover(sizes: int, floor: float) -> None:
    """95 % or more, within binomial error, with an irreducible loss and without."""
    found = counted(sizes, floor, 3)
    print(f"{sizes} sizes, floor {floor}: {dict(found)} of {STUDIES}")
    for name in ("exponent", "floor", "loss"):
        assert stats.binomtest(found[name], STUDIES, 0.95, alternative="less").pvalue > 0.001, name
    assert stats.binomtest(found["lack of fit"], STUDIES, 0.05, alternative="greater").pvalue > 0.001
    if found["determined"]:
        assert stats.binomtest(found["beyond"], found["determined"], 0.95, alternative="less").pvalue > 0.001, (
            "beyond the largest size"
        )
