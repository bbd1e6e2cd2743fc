"""Loss against compute as a power law with an irreducible loss, and its range of validity. Pure.

    L(C) = E + A·C^(−b)        E, A ≥ 0, b > 0        (Hoffmann et al. 2022, arXiv:2203.15556)

The law is fitted to the mean losses of K sizes over the same n seeds, by least squares of relative errors, which for
small noise are errors of the logarithm. For a given b the law is linear in E and A, so the best fit is a search along b
alone and cannot miss a local minimum (variable projection, Golub and Pereyra 1973).

Seeds are random effects. A seed's common influence on all sizes moves the whole curve; the residual beside sizes and
seeds, with ν = (K − 1)(n − 1) degrees of freedom, is the noise s² of the fit. With S the weighted squares over s²:

    interval of b, E or L(C)    where the least S with that value fixed is below S_min + F(1 − α; 1, ν)
    lack of fit                 S_min / (K − 3) against F(K − 3, ν); K − 2 where E = 0; none with three sizes

A straight line in ln L and ln C has no E: if E = 1.7, its interval of b covers in 0 % of ladders, whatever the seeds.
Assumes relative noise that is alike at all sizes.

Three sizes fit any three losses that fall and flatten, so they do not test the law: `determined` needs four that do not
contradict it, and an interval of b with two ends. `reach` is the multiple of the largest compute up to which losses may
be predicted: one more step of a determined ladder.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # loads its submodules on first use
from numpy.typing import ArrayLike
from scipy import special  # scipy.stats takes seconds to load

from reports.judge.statistics.crossed import crossed
from reports.judge.statistics.estimates import Floats, Interval
from reports.judge.verdicts import ALPHA

EXPONENTS = (0.005, 2.0)
"""Range of b that can be distinguished: a smaller b looks like no fall, a larger b like a loss that has reached its
floor."""
GRID = 40
REFINEMENTS = 4
FEWEST_SIZES = 3


@dataclass(frozen=True)
class LawPoints:
    """Points for fitting a law: mean losses by compute, with the variances of these means.

    A point with a finite `against` is the difference from the loss at that compute. `log_flops` may have axes before
    that of the points: one fit for each.
    """

    log_flops: Floats
    losses: Floats
    variances: Floats
    against: Floats

    def squares(self, exponents: Floats) -> tuple[Floats, Floats, Floats]:
        """S, E and A of the best law for each exponent: the free fit, or the better fit with E or A at zero."""
        # weighted normal equations of the line loss = E·one + A·power, for all exponents at once: (…, exponents)
        power, one, weight = self.powers(exponents), np.isinf(self.against) * 1.0, 1 / self.variances
        n, x, xx = weight @ one, power @ (weight * one), power**2 @ weight
        y, xy = (weight * one) @ self.losses, power @ (weight * self.losses)
        with np.errstate(divide="ignore", invalid="ignore"):
            free = (y * xx - xy * x) / (n * xx - x**2), (n * xy - x * y) / (n * xx - x**2)
        # outside E, A ≥ 0 the best law lies on the boundary
        nothing = np.zeros(power.shape[:-1])
        choices = [free, (nothing, xy / xx), (nothing + y / n, nothing)]
        found = np.array([self._misfit(power, *choice) for choice in choices])
        found[0, ~((free[0] >= 0) & (free[1] >= 0))] = np.inf
        best = found.argmin(axis=0)
        constant, scale = (np.choose(best, [choice[i] for choice in choices]) for i in (0, 1))
        return found.min(axis=0), constant, scale

    def powers(self, exponents: Floats) -> Floats:
        """Factor of A: C^(−b), less that of the loss compared with. (…, exponents, points)"""
        return np.exp(-exponents[:, None] * self.log_flops) - np.exp(-exponents[:, None] * self.against)

    def squares_through(self, log_flops: float, loss: float) -> Callable[[Floats], Floats]:
        """S by exponent of the best law with this loss at this compute; an infinite `log_flops` fixes E itself."""

        def found(exponents: Floats) -> Floats:
            there = np.exp(-exponents * log_flops) if math.isfinite(log_flops) else np.zeros(len(exponents))
            power, weight = self.powers(exponents), 1 / self.variances
            # the constraint E = loss − A·there leaves a line through the origin with slope A
            x = power - there[:, None]
            scale = x @ (weight * (self.losses - loss)) / (x**2 @ weight)
            most = np.divide(loss, there, out=np.full(len(exponents), np.inf), where=there > 0)
            scale = np.clip(scale, 0, most)  # E = loss − A·there is not negative
            return self._misfit(power, loss - scale * there, scale)

        return found

    def _misfit(self, power: Floats, constant: Floats, scale: Floats) -> Floats:
        left = self.losses - np.isinf(self.against) * constant[..., None] - scale[..., None] * power
        return np.asarray(left**2 @ (1 / self.variances))


@dataclass(frozen=True)
class ScalingLaw:
    """A law fitted to the `means` at `flops`, smallest first.

    `noise` is the relative standard deviation of one run apart from its seed's influence on all sizes, `shift` that of
    the seed's influence.
    """

    flops: tuple[float, ...]
    means: tuple[float, ...]
    seeds: int
    noise: float
    shift: float

    @property
    def freedom(self) -> int:
        return (len(self.flops) - 1) * (self.seeds - 1)

    @cached_property
    def points(self) -> LawPoints:
        """Points of the fit, with compute in units of its geometric mean."""
        means = np.array(self.means)
        variances = (self.noise * means) ** 2 / self.seeds
        return LawPoints(self._logs(np.array(self.flops)), means, variances, np.full(len(means), np.inf))

    @cached_property
    def best(self) -> tuple[float, float, float, float]:
        """(S_min, b, E, A) of the best law."""
        square, exponent = _best_exponent(lambda exponents: self.points.squares(exponents)[0])
        _, constant, scale = self.points.squares(np.array([exponent]))
        return square, exponent, float(constant[0]), float(scale[0])

    @property
    def lack_of_fit(self) -> float | None:
        """p-value of the hypothesis that the sizes follow the law; None for three sizes, which leave nothing to
        test."""
        if len(self.flops) <= FEWEST_SIZES:
            return None
        freedom = len(self.flops) - (2 if self.best[2] == 0 else 3)
        return float(special.fdtrc(freedom, self.freedom, self.best[0] / freedom))

    @property
    def determined(self) -> bool:
        """Whether the data determine the law."""
        exponent = self.exponent()
        fits = self.lack_of_fit is not None and self.lack_of_fit >= ALPHA
        return fits and exponent.low > 0 and math.isfinite(exponent.high)

    @property
    def reach(self) -> float:
        """Factor beyond the largest compute up to which losses may be predicted."""
        return self.flops[-1] / self.flops[-2] if self.determined else 1.0

    def exponent(self, alpha: float = ALPHA) -> Interval:
        """b, with its interval. An end is 0 or infinite if the data do not rule out the end of `EXPONENTS` on that
        side."""
        value = self.best[1]

        def excess(log: float) -> float:
            return float(self.points.squares(np.exp([log]))[0][0]) - self._bound(alpha)

        low, high = (math.log(end) for end in EXPONENTS)
        lower = math.exp(scipy.optimize.brentq(excess, low, math.log(value))) if excess(low) > 0 else 0.0
        upper = math.exp(scipy.optimize.brentq(excess, math.log(value), high)) if excess(high) > 0 else math.inf
        return Interval(value, lower, upper)

    def irreducible(self, alpha: float = ALPHA) -> Interval:
        """E, the loss at infinite compute if the law holds that far."""
        return self._interval(math.inf, self.best[2], alpha)

    def loss(self, flops: float, alpha: float = ALPHA) -> Interval:
        """Loss of the law at a compute; the interval is that of the mean over seeds, not of one run."""
        log = float(self._logs(np.array(flops)))
        _, exponent, constant, scale = self.best
        return self._interval(log, constant + scale * math.exp(-exponent * log), alpha)

    def _interval(self, log_flops: float, value: float, alpha: float) -> Interval:
        def excess(other: float) -> float:
            return _best_exponent(self.points.squares_through(log_flops, other))[0] - self._bound(alpha)

        # profile of S over the fit's noise, then seeds' common shift of the curve, in quadrature
        step = self.noise * self.means[-1]
        low, high = (_crossing(excess, value, sign * step) for sign in (-1, 1))
        own = -float(special.stdtrit(self.seeds - 1, alpha / 2)) * self.shift * value / math.sqrt(self.seeds)
        return Interval(value, max(0.0, value - math.hypot(value - low, own)), value + math.hypot(high - value, own))

    def _bound(self, alpha: float) -> float:
        return self.best[0] + float(special.fdtri(1, self.freedom, 1 - alpha))

    @property
    def _origin(self) -> float:
        return float(np.log(self.flops).mean())

    def _logs(self, flops: Floats) -> Floats:
        return np.asarray(np.log(flops) - self._origin)


def fit(flops: ArrayLike, losses: ArrayLike) -> ScalingLaw:
    """Fit a law to losses (sizes, seeds) of the same seeds at every size. flops: (sizes,), per run.

    Raises ValueError for fewer than three sizes or two seeds, for gaps, and if seeds do not differ.
    """
    table, compute = np.asarray(losses, dtype=np.float64), np.asarray(flops, dtype=np.float64)
    if table.ndim != 2 or len(table) < FEWEST_SIZES or table.shape[1] < 2 or not np.isfinite(table).all():
        raise ValueError(f"needs losses of {FEWEST_SIZES} sizes or more and the same 2 seeds or more at each")
    order = compute.argsort()
    means = table[order].mean(axis=1)
    relative = crossed((table[order] / means[:, None]).T)
    if relative.residual_square == 0:
        raise ValueError("needs losses that differ between seeds")
    return ScalingLaw(
        tuple(compute[order].tolist()),
        tuple(means.tolist()),
        table.shape[1],
        math.sqrt(relative.residual_square),
        math.sqrt(relative.row_variance),
    )


def least(squares: Callable[[Floats], Floats], low: float, high: float) -> tuple[float, float]:
    """(least S, its place), by search on successively finer grids."""
    for _ in range(REFINEMENTS):
        grid = np.linspace(low, high, GRID)
        found = squares(grid)
        best = int(found.argmin())
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, GRID - 1)]
    return float(found[best]), float(grid[best])


def _best_exponent(squares: Callable[[Floats], Floats]) -> tuple[float, float]:
    """(least S, its exponent)."""
    square, log = least(lambda logs: squares(np.exp(logs)), *np.log(EXPONENTS))
    return square, math.exp(log)


def _crossing(excess: Callable[[float], float], start: float, step: float) -> float:
    """Loss at which the excess, negative at `start`, rises to zero in the direction of `step`; at least 0."""
    far = max(start + step, 0.0)
    while far > 0 and excess(far) < 0:
        step *= 2
        far = max(start + step, 0.0)
    return scipy.optimize.brentq(excess, start, far, xtol=abs(step) * 1e-3) if excess(far) > 0 else far
