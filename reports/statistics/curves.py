"""Arms compared at the optimum of their learning-rate curves rather than at the best rate tried. Pure.

    L(x) = c₀ + c₁x + c₂x² + c₃x³, x = ln rate, through the four rates about the lowest mean loss over seeds
    x̂ = its minimum for the mean of the seeds        loss of a seed = its own curve at x̂

An arm's losses at x̂, one per tuning seed, pair with another arm's as those of ordinary runs do. At the optimum the
slope is zero, so that the uncertainty of x̂ enters them only in second order, and the spread over seeds is all that a
paired t-test needs. Nothing is chosen by a single noisy minimum.

A quadratic is not enough: losses rise more steeply above the optimum than below it, and two arms with the same least
loss, at rates that differ by a factor of 1.4, then seem different. With curves 2(e^ku − 1 − ku)/k² in decades u, a
curvature of 0.4 nats, k = 1.5, rates a factor of 2 apart, 3 seeds with sd 0.005 (called different, of 2,000):

    argmin of one tuning seed 16 %    quadratic through 5 rates 37 %, 4 rates 15 %, 3 rates 7 %    cubic through 4: 5 %

Rates a factor of 3 apart leave an error of interpolation that reaches 0.005 nats where k = 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from reports.statistics.estimates import Floats

NEAREST = 4


@dataclass(frozen=True)
class Optimum:
    """The best learning rate of an arm and the loss of every tuning seed there.

    `reason` says why it is the best of the rates that were tried instead of the optimum between them; None otherwise.
    """

    rate: float
    by_seed: tuple[float, ...]
    reason: str | None = None


def optimum(losses: Mapping[float, Sequence[float]]) -> Optimum:
    """From the losses of the same seeds, in the same order, at every rate; one that diverged is infinite or NaN.

    Raises ValueError where no rate has only finite losses.
    """
    rates = sorted(losses)
    table = np.array([losses[rate] for rate in rates], dtype=np.float64)
    finite = np.asarray(np.isfinite(table).all(axis=1))
    if not finite.any():
        raise ValueError("every learning rate has a seed that diverged")
    means = np.where(finite, np.where(finite[:, None], table, 0.0).mean(axis=1), math.inf)
    best = int(means.argmin())
    window = _window(means, best)
    if window is None:
        return Optimum(rates[best], tuple(table[best].tolist()), _why_not(rates, finite, best))
    return _interpolated(np.log(rates)[window], table[window])


def _window(means: Floats, best: int) -> slice | None:
    """Four neighbouring rates with `best` inside, the choice with the lower highest loss; None without any."""
    choices = [slice(low, low + NEAREST) for low in (best - 2, best - 1) if 0 <= low <= len(means) - NEAREST]
    whole = [choice for choice in choices if choice.start < best < choice.stop - 1 and np.isfinite(means[choice]).all()]
    return min(whole, key=lambda choice: float(means[choice].max()), default=None)


def _why_not(rates: Sequence[float], finite: NDArray[np.bool_], best: int) -> str:
    if best == 0:
        return f"not bracketed: the lowest rate tried, {rates[0]:g}, is the best"
    if best == len(rates) - 1:
        return f"not bracketed: the highest rate tried, {rates[-1]:g}, is the best"
    if not finite.all():
        return f"the rates about {rates[best]:g} at which no seed diverged are fewer than {NEAREST}"
    return f"fewer than {NEAREST} rates were tried"


def _interpolated(x: Floats, table: Floats) -> Optimum:
    """`table` is (rates, seeds). Its mean has a minimum inside, so the cubic of the mean has one too."""
    centre, half = (x[0] + x[-1]) / 2, (x[-1] - x[0]) / 2
    mean = Polynomial.fit(x, table.mean(axis=1), len(x) - 1, domain=[centre - half, centre + half])
    inside = [root.real for root in mean.deriv().roots() if abs(root.imag) < 1e-9 and x[0] < root.real < x[-1]]
    place = min(inside, key=mean)
    seeds = [Polynomial.fit(x, column, len(x) - 1) for column in table.T]
    return Optimum(math.exp(place), tuple(float(seed(place)) for seed in seeds))
