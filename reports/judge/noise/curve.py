"""Loss against learning rate near the best: which rate to take, which to try next, what the taken one may have lost.

With x = log₁₀ rate and u = x − x*, each hypothesis has its minimum m at x*:

    smooth   L = m + A·2(e^ku − 1 − ku)/k²       k = 0 is a parabola; larger k rises ever more steeply above x*
    ramp     L = m + A·u² below, m + B·u above   a basin that ends in a ramp
    cliff    L = m + A·u² or m + A·|u| below     anything ≥ m above: losses there tell nothing else about the basin

x* runs over a grid across the fitted rates, up to a failed rate if that is next above the best. A, B ≥ 0 are fitted to
the mean losses by least squares. A hypothesis is weighted by Student's likelihood of its residuals, times the Occam
factor min(1, √(2π)·σ/`PRIOR_RANGE`), σ that of a mean, for each parameter beyond those of a smooth curve: one for a
ramp, and for a cliff one for each loss above it. If no hypothesis fits to within the noise, the noise is enlarged until
the best one does. All rates of an arm share their tuning seeds, so the common effect of a seed cancels.

The taken rate x̂ is always one that was tried. Its penalty, P = L(x̂) − m, is a distribution over hypotheses and
amplitudes: near a smooth optimum it is of second order in the noise; beside a cliff it may be as large as the fall of
the basin that remains before the cliff.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # loads its parts on first use
from numpy.typing import NDArray

from reports.judge.noise import Floats, Noise
from reports.judge.noise.difference import Penalty

STEP = 0.02
"""Spacing of the grid of x*, in decades."""
SKEWS = (0.0, 1.5, 3.0, 6.0, 12.0, 24.0)
"""k of the smooth curves, per decade."""
PRIOR_RANGE = 1.0
"""Width of the prior of a loss above a cliff and of the height of a ramp, in nats."""
BELOW, ABOVE = 3, 2
"""Number of rates below and above the best tried one that the curve is fitted to: further away it does not hold."""
WORTH_TRYING = 0.1
"""Expected gain, in standard deviations of a run, above which another rate is tried."""
SHRINKAGE = 4
"""ν₀ of `_variances`: weight of the pooled noise against that of a rate above the best, which is often larger."""


@dataclass(frozen=True)
class RateCurve:
    """Hypotheses about one arm's losses by rate, weighted by the evidence.

    rates: the fitted rates, ascending; x: their log₁₀; y: their mean losses; `best`: index of the least, all over
    rates. From `star` on, arrays are over hypotheses.
    """

    rates: tuple[float, ...]
    x: Floats
    y: Floats
    best: int
    variance: Floats
    """Variance of these means."""
    sd: float
    """Standard deviation of one run."""
    freedom: float
    star: Floats
    """x*."""
    shape: NDArray[np.int_]
    """Index into `SHAPES`."""
    minimum: Floats
    """m."""
    amplitude: Floats
    """(hypotheses, 2): A and B."""
    error: Floats
    """Standard errors of A and B."""
    weight: Floats

    @classmethod
    def fit(cls, losses: Mapping[float, Sequence[float]], noise: Noise | None) -> RateCurve | None:
        """Fit to the losses of every tuning seed by rate, infinite for a failed seed.

        noise: the noise of one run. Returns None if the best rate is not between two others, of which the upper may
        have failed, or if the noise is not known or zero.
        """
        rates = sorted(losses)
        means = np.array([np.mean(losses[rate]) for rate in rates])
        window = _window(means)
        if window is None or noise is None or noise.sd == 0:
            return None
        low, best, high, fails_above = window
        near = rates[low : high + 1]
        end = rates[high + 1] if fails_above and best == high else rates[high]
        tables = np.array([losses[rate] for rate in near], dtype=np.float64)
        variance = _variances(tables, best - low, noise) / tables.shape[1]
        return _fitted(near, means[low : high + 1], best - low, variance, noise, math.log10(end))

    @cached_property
    def taken(self) -> int:
        """Index of the rate to take: of the best and its neighbours, the least by expected loss plus standard error."""
        near = np.arange(max(self.best - 1, 0), min(self.best + 2, len(self.x)))
        cautious = self.expected(self.x[near]) + np.sqrt(self.variance[near])
        return int(near[np.argmin(cautious)])

    @property
    def rate(self) -> float:
        """The rate to take, which was tried."""
        return self.rates[self.taken]

    def expected(self, x: Floats) -> Floats:
        """Expected loss at these x, (places,)."""
        return np.asarray(self.weight @ self._losses(x))

    def _losses(self, x: Floats) -> Floats:
        """Losses, (hypotheses, places). Above a cliff they are interpolated between the mean losses, but at least m;
        above the highest rate `PRIOR_RANGE` is added to its mean loss."""
        left, right = _bases(x[None, :] - self.star[:, None], self.shape)
        found = self.minimum[:, None] + self.amplitude[:, :1] * left + self.amplitude[:, 1:] * right
        beyond = _IS_CLIFF[self.shape][:, None] & (x[None, :] > self.star[:, None])
        over = np.interp(x, np.append(self.x, self.x[-1] + STEP), np.append(self.y, self.y[-1] + PRIOR_RANGE))
        return np.where(beyond, np.maximum(over, self.minimum[:, None]), found)

    def penalty(self, rate: float, draws: int = 20_000) -> Penalty:
        """Distribution of the nats that taking this rate may have lost."""
        x, draw = math.log10(rate), np.random.default_rng(0)
        picked = draw.choice(len(self.weight), draws, p=self.weight)
        scale = np.sqrt(self.freedom / draw.chisquare(self.freedom, draws))  # unknown σ: Student's t, not a normal
        u = x - self.star[picked]
        left, right = (each[:, 0] for each in _bases(u[:, None], self.shape[picked]))
        side = (right > 0).astype(int)  # B above the x* of a ramp, else A
        mean, error = self.amplitude[picked, side], scale * self.error[picked, side]
        # Amplitudes from normal distributions truncated at zero: Φ⁻¹(p₀ + U·(1 − p₀)) with p₀ = Φ(−mean/error).
        below = scipy.special.ndtr(-mean / error)
        quantile = scipy.special.ndtri(below + draw.random(len(mean)) * (1 - below))
        amplitude = np.maximum(mean + error * np.where(np.isfinite(quantile), quantile, 0.0), 0.0)
        lost = amplitude * np.where(side == 1, right, left)
        beyond = _IS_CLIFF[self.shape[picked]] & (u > 0)
        over = float(np.interp(x, self.x, self.y)) - self.minimum[picked]
        lost = np.where(beyond, np.maximum(over, 0.0), lost)
        return Penalty.of(lost, np.full(draws, 1 / draws))

    def next_rate(self) -> float | None:
        """The rate between the best and its neighbours with the largest expected gain; None if none is worth trying."""
        at = self.x[[self.taken]]
        # Upper end of the bracket of the best rate: the next rate, or the one that failed.
        end = self.x[self.best + 1] if self.best + 1 < len(self.x) else self.star.max()
        ends = [self.x[max(self.best - 1, 0)], self.x[self.best], end]
        places = np.concatenate([a + (b - a) * np.array([0.25, 0.5, 0.75]) for a, b in itertools.pairwise(ends)])
        gain = self.weight @ np.maximum(self._losses(at) - self._losses(places), 0.0)
        most = int(np.argmax(gain))
        return float(10 ** places[most]) if gain[most] > WORTH_TRYING * self.sd else None

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """Ends of the interval that has the best rate with 95 % probability."""
        order = np.argsort(self.star)
        below = np.cumsum(self.weight[order])
        low, high = (float(self.star[order][np.searchsorted(below, level)]) for level in (0.025, 0.975))
        return 10**low, 10**high

    def points(self, count: int = 41) -> tuple[tuple[float, float], ...]:
        """Rates and expected losses of the curve, for drawing."""
        x = np.linspace(self.x[0], self.x[-1], count)
        return tuple(zip((10**x).tolist(), self.expected(x).tolist(), strict=True))


def noise_between(losses: Sequence[Sequence[float]]) -> Noise | None:
    """Noise of one run in a table (rates, seeds), apart from what a seed does to all rates; None if it has no size."""
    table = np.asarray(losses, dtype=np.float64)
    freedom = (len(table) - 1) * (table.shape[1] - 1)
    if freedom < 1:
        return None
    left = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    return Noise(math.sqrt(float(np.square(left).sum()) / freedom), freedom)


SHAPES = (*((f"smooth {k:g}", 1) for k in SKEWS), ("ramp", 2), ("cliff", 2), ("falling cliff", 2))
"""Names, and numbers of parameters beside m and x*."""
_IS_CLIFF = np.array(["cliff" in name for name, _ in SHAPES])
_RAMP, _CLIFF, _FALLING = range(len(SKEWS), len(SKEWS) + 3)


def _bases(u: Floats, shape: NDArray[np.int_]) -> tuple[Floats, Floats]:
    """Factors of A and B at u = x − x*, (hypotheses, places) each; a smooth curve has A on both sides."""
    below = np.minimum(u, 0.0)
    left = below**2
    for place, k in enumerate(SKEWS):
        of = shape == place
        left[of] = u[of] ** 2 if k == 0 else 2 * (np.expm1(np.minimum(k * u[of], 60.0)) - k * u[of]) / k**2
    left[shape == _FALLING] = -below[shape == _FALLING]
    right = np.where((shape == _RAMP)[:, None], np.maximum(u, 0.0), 0.0)
    return left, right


def _window(means: Floats) -> tuple[int, int, int, bool] | None:
    """Indices of the lowest rate to fit, of the best and of the highest, and whether the rate above that failed.

    None if the best rate has no neighbour below, or neither a neighbour nor a failed rate above.
    """
    finite = np.isfinite(means)
    if not finite.any():
        return None
    best = int(np.argmin(np.where(finite, means, np.inf)))
    low = high = best
    while low > 0 and best - low < BELOW and finite[low - 1]:
        low -= 1
    while high + 1 < len(means) and high - best < ABOVE and finite[high + 1]:
        high += 1
    fails_above = high + 1 < len(means) and not finite[high + 1]
    return None if low == best or (high == best and not fails_above) else (low, best, high, fails_above)


def _variances(losses: Floats, best: int, noise: Noise) -> Floats:
    """Variance of one run at each rate, from losses (rates, seeds): σ², pooled; above the best at least its own.

    A rate's own is s² = Var(differences from the best) − σ², shrunken to (ν₀·σ² + (n − 1)·s²) / (ν₀ + n − 1) over n
    seeds, ν₀ = `SHRINKAGE`.
    """
    found = np.full(len(losses), noise.sd**2)
    seeds = losses.shape[1]
    if seeds > 1:
        beyond = losses[best + 1 :] - losses[best]
        own = np.maximum(beyond.var(axis=1, ddof=1) - noise.sd**2, 0.0)
        shrunken = (SHRINKAGE * noise.sd**2 + (seeds - 1) * own) / (SHRINKAGE + seeds - 1)
        found[best + 1 :] = np.maximum(found[best + 1 :], shrunken)
    return found


def _fitted(rates: Sequence[float], y: Floats, best: int, variance: Floats, noise: Noise, end: float) -> RateCurve:
    """Fit and weigh every hypothesis: each x* of the grid from the lowest rate to `end` (log₁₀) with each shape."""
    x: Floats = np.log10(np.asarray(rates, dtype=np.float64))
    stars = np.arange(x[0], end + STEP / 2, STEP)
    star, shape = (each.ravel() for each in np.meshgrid(stars, np.arange(len(SHAPES)), indexing="ij"))
    u = x[None, :] - star[:, None]
    left, right = _bases(u, shape)
    # (hypotheses, rates): losses above a cliff are not fitted, and at least two others are needed.
    silent = _IS_CLIFF[shape][:, None] & (u > 0)
    weights = np.where(silent, 0.0, 1 / variance)
    enough = (weights > 0).sum(axis=1) >= 2
    star, shape, left, right, weights = (each[enough] for each in (star, shape, left, right, weights))
    minimum, amplitude, error, squares = _least_squares(y, left, right, weights)
    under = np.maximum(minimum[:, None] - y[None, :], 0.0)  # a loss above a cliff contradicts it only if below m
    squares += np.where(weights > 0, 0.0, under**2 / variance).sum(axis=1)
    # Enlarge the noise until the best hypothesis fits, weigh by Student's likelihood, and add the Occam factors.
    spare = max(len(x) - 3, 1)
    misfit = max(1.0, float(squares.min()) / spare)
    freedom = noise.freedom
    score = -(freedom + len(x)) / 2 * np.log1p((squares - squares.min()) / misfit / freedom)
    occam = math.log(math.sqrt(2 * math.pi * float(variance.min())) / PRIOR_RANGE)
    extra = np.array([count - 1 for _, count in SHAPES])[shape]
    score += np.minimum(occam, 0.0) * np.where(_IS_CLIFF[shape], (weights == 0).sum(axis=1), extra)
    weight = np.exp(score - score.max())
    return RateCurve(
        tuple(rates),
        x,
        y,
        best,
        variance,
        noise.sd,
        freedom,
        star,
        shape,
        minimum,
        amplitude,
        error * math.sqrt(misfit),
        weight / weight.sum(),
    )


def _least_squares(y: Floats, left: Floats, right: Floats, weights: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """m, (A, B) ≥ 0, the standard errors of A and B, and the weighted sum of squares, for every hypothesis."""
    total = weights.sum(axis=1)

    def centred(values: Floats) -> tuple[Floats, Floats]:
        mean = (weights * values).sum(axis=1) / total
        return mean, values - mean[:, None]

    # Centring eliminates m and leaves 2 × 2 normal equations for A and B.
    (mean_y, dy), (mean_a, da), (mean_b, db) = centred(np.broadcast_to(y, left.shape)), centred(left), centred(right)
    aa, bb, ab, ay, by = ((weights * p * q).sum(axis=1) for p, q in ((da, da), (db, db), (da, db), (da, dy), (db, dy)))
    tiny = 1e-12
    alone_a, alone_b = np.maximum(ay, 0) / np.maximum(aa, tiny), np.maximum(by, 0) / np.maximum(bb, tiny)
    determinant = aa * bb - ab**2
    both = determinant > tiny * np.maximum(aa * bb, tiny)
    safe = np.where(both, determinant, 1.0)
    a, b = (bb * ay - ab * by) / safe, (aa * by - ab * ay) / safe
    # If A or B is negative, the constrained optimum has one of them at zero: take the one that explains more.
    inside = both & (a >= 0) & (b >= 0)
    gain_a, gain_b = alone_a * ay, alone_b * by
    a_only = gain_a >= gain_b
    a = np.where(inside, a, np.where(a_only, alone_a, 0.0))
    b = np.where(inside, b, np.where(a_only, 0.0, alone_b))
    error = np.sqrt(
        np.stack(
            [np.where(both, bb / safe, 1 / np.maximum(aa, tiny)), np.where(both, aa / safe, 1 / np.maximum(bb, tiny))],
            1,
        )
    )
    rest = dy - a[:, None] * da - b[:, None] * db
    squares = (weights * rest**2).sum(axis=1)
    return mean_y - a * mean_a - b * mean_b, np.stack([a, b], axis=1), error, squares
