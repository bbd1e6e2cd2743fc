"""What an arm may have lost because its rate was tuned on noisy losses, and intervals with room for it. Pure.

An arm trained at the rate x̂ that tuning took reaches L(x̂) = min L + P with a penalty P = L(x̂) − min L ≥ 0. A study
asks for the difference of the minima, D = min L_a − min L_b = L_a(x̂_a) − L_b(x̂_b) − P_a + P_b. What P may be follows
from the tuning runs themselves:

    y_js = f(x_j) + b_s + e_js      seeds s are blocks shared by the rates j; Var e = σ² from (k − 1)(S − 1) residuals
    f*   = the curve through ȳ_j + z_j σ*/√S, z ~ N(0, 1), σ*² = σ²·ν/χ²_ν          one draw of what the curve may be
    P*   = f*(x̂) − the least of f* between its rates and of all rates that were tried

and the interval of D at level α has the ends

    low: the α/2 quantile of T − P*_a      high: the 1 − α/2 quantile of T + P*_b      p: the α at which one is zero

where T is distributed as the interval of L_a(x̂_a) − L_b(x̂_b) says at all levels: d̄ + t·sd/√n for a t-interval. No end
takes credit for what the other arm may have lost, so the interval always contains that without tuning. A union bound,
low − B_a with P_a ≤ B_a in 1 − α/20, would widen it by five to ten times as much.

Near an optimum P = (slope at x̂)²/(2·curvature): where the rate matters, the penalty is of second order in the noise.
Where it hardly matters it is about the noise of tuning itself. Assumed: that σ is the same for all arms, whose
residuals are pooled, but for erratic rates, whose own σ is drawn from at these alone (`reports.statistics.erratic`),
and that tuning runs are as long as those compared. Where a study tunes on shorter ones (several
settings at once, with `fraction`), it is assumed that noise and curvature at full length are no larger, and the best
the same.

Of an arm whose best setting is the last one tried in a direction, P has no bound: it may have lost anything. Then the
interval has no end on that side, and such an arm can be shown to be better, but neither worse nor the same.

Arms with the same least loss, at rates that differ by a factor of 1.4, each tuned on two seeds with sd 0.01, called
different of 300 (in brackets without room), and the median room in nats; curvatures in nats per squared decade:

    curvature 0, 3 seeds: 1 (7), 0.0096    0.05, 12 seeds: 5 (33), 0.0150    0.2, 12 seeds: 4 (24), 0.0066
    0.2, 3 seeds: 3 (19), 0.0054           1.0, 3 seeds: 14 (15), 0.0002

Of 400 toy studies whose identical arms were tuned and trained in earnest, 5 named a winner
(`tests/ablate/test_no_effect.py`). Models of 0.05 M parameters have curvatures of 0.5 to 0.9 (studies/LOG.md). A
difference of 0.015 nats, sd 0.005, is found with 5 seeds in 72 of 80 studies (72) at curvature 1, 71 (73) at 0.4, and
62 (73) at 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # whose parts are loaded when they are first used
from numpy.typing import ArrayLike

from reports.statistics.estimates import ALPHA, Floats
from reports.statistics.interval import Interval

DRAWS = 10_000
FEWEST = 0.002
"""Quantiles further out than this share of the draws are extrapolated."""
GRID = 41
"""Points of a curve at which its least value is sought."""
LEVELS = np.append(np.geomspace(1e-12, 0.1, 140, endpoint=False), np.linspace(0.1, 1.0, 120))
"""At which penalties and intervals are read."""

Ends = Callable[[float], tuple[float, float]]
"""Of an interval at a two-sided level."""


@dataclass(frozen=True)
class Noise:
    """Standard deviation of a loss, and its degrees of freedom."""

    sd: float
    freedom: int

    def of_mean(self, seeds: int) -> Noise:
        """That of the mean of so many."""
        return Noise(self.sd / math.sqrt(seeds), self.freedom)


@dataclass(frozen=True)
class Penalty:
    """Draws of what a choice may have lost, in order, and the degrees of freedom of their noise; and the `most` that it
    can have lost whatever they say: an arm's loss is that much above the least that a loss can be."""

    draws: Floats
    freedom: int
    most: float = math.inf

    def bound(self, level: float) -> float:
        """What is exceeded with this probability: a quantile of the draws. Beyond 1 in 500, where draws are few, it
        grows as the square of Student's t does."""
        tail = max(level, FEWEST)
        place = (1 - tail) * (len(self.draws) - 1)  # they are in order: np.quantile would sort them again
        found = float(np.interp(place, np.arange(len(self.draws)), self.draws))
        return min(self.most, found * math.pow(tail / level, 2 / self.freedom))

    def and_of(self, other: Penalty) -> Penalty:
        """Of both choices, made on runs that have nothing in common."""
        if self is NOTHING or other is NOTHING:
            return other if self is NOTHING else self
        mixed = np.random.default_rng(0).permutation(other.draws)  # each is in order
        return Penalty(np.sort(self.draws + mixed), min(self.freedom, other.freedom), self.most + other.most)

    @cached_property
    def values(self) -> Floats:
        """Its distribution in few points, in order; `weights` are theirs."""
        edges = np.append(0.0, LEVELS)
        return np.array([self.bound(float(level)) for level in (edges[:-1] + edges[1:])[::-1] / 2])

    @property
    def weights(self) -> Floats:
        """Each point stands for the levels about it."""
        return np.asarray(np.diff(LEVELS, prepend=0.0)[::-1])


NOTHING = Penalty(np.zeros(DRAWS), 1)
"""Of an arm that tuned nothing."""
UNBOUNDED = Penalty(np.full(DRAWS, math.inf), 1)
"""Of an arm whose best setting lies beyond those that were tried."""


def penalty(
    means: Sequence[float], chosen: int, noise: Noise, times: Sequence[float] | float = 1.0, seed: int = 0
) -> Penalty:
    """Of taking one of the settings that have these mean losses; `noise` is of the means, of erratic ones so many
    times that."""
    drawn = _drawn(means, noise, times, seed)
    return Penalty(np.sort(drawn[:, chosen] - drawn.min(axis=1)), noise.freedom)


@dataclass(frozen=True)
class RateNoise:
    """What taking a rate on a curve may have cost, and where between the rates of the curve its minimum may be."""

    penalty: Penalty
    rate: Interval


def rate_noise(
    rates: Sequence[float],
    means: Sequence[float],
    through: Sequence[float],
    chosen: float,
    noise: Noise,
    times: Sequence[float] | float = 1.0,
    seed: int = 0,
) -> RateNoise:
    """Of taking `chosen` on the curve through the mean losses at some of the rates; `noise` is of those means, at
    erratic rates so many times that."""
    drawn = _drawn(means, noise, times, seed)
    x = np.log(through)
    places = np.append(np.linspace(x[0], x[-1], GRID), math.log(chosen))
    curves = drawn[:, [list(rates).index(rate) for rate in through]] @ _basis(x, places).T
    least = np.minimum(curves.min(axis=1), drawn.min(axis=1))
    low, high = np.exp(np.quantile(places[curves.argmin(axis=1)], [ALPHA / 2, 1 - ALPHA / 2]))
    found = Penalty(np.sort(curves[:, -1] - least), noise.freedom)
    return RateNoise(found, Interval(chosen, float(low), float(high)))


def residual_noise(losses: ArrayLike) -> Noise | None:
    """σ of one run in a table (settings, seeds), once the means of rows and columns are gone; None with one seed."""
    table = np.asarray(losses, dtype=np.float64)
    rows, seeds = table.shape
    freedom = (rows - 1) * (seeds - 1)
    if not freedom:
        return None
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    return Noise(math.sqrt(float((rest**2).sum()) / freedom), freedom)


def pooled(found: Sequence[Noise]) -> Noise | None:
    """Of several tables with the same noise; None without any."""
    freedom = sum(each.freedom for each in found)
    squares = math.fsum(each.freedom * each.sd**2 for each in found)
    return Noise(math.sqrt(squares / freedom), freedom) if freedom else None


def _drawn(means: Sequence[float], noise: Noise, times: Sequence[float] | float, seed: int) -> Floats:
    """Mean losses as they may be: (draws, settings)."""
    draw = np.random.default_rng(seed)
    scale = noise.sd * np.sqrt(noise.freedom / draw.chisquare(noise.freedom, (DRAWS, 1)))
    found: Floats = np.asarray(means) + scale * np.asarray(times) * draw.normal(size=(DRAWS, len(means)))
    return found


def curve_through(rates: Sequence[float], means: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Points of the curve, by rate."""
    x = np.log(rates)
    places = np.linspace(x[0], x[-1], GRID)
    losses = _basis(x, places) @ np.asarray(means, dtype=np.float64)
    return tuple(zip(np.exp(places).tolist(), losses.tolist(), strict=True))


def _basis(x: Floats, places: Floats) -> Floats:
    """Lagrange's polynomials: the curve through values y at `x` is `basis @ y` at `places`. (places, len(x))"""
    others = [[x[j] for j in range(len(x)) if j != i] for i in range(len(x))]
    columns = [np.prod([(places - o) / (x[i] - o) for o in others[i]], axis=0) for i in range(len(x))]
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class Widened:
    """An interval of a difference own − other with room for what either arm may have lost to tuning.

    `_at` are values of T in order with their log-odds u, log P(T < value)/P(T > value).
    """

    _at: Floats
    _odds: Floats
    own: Penalty
    other: Penalty

    @classmethod
    def of(cls, interval: Ends, own: Penalty, other: Penalty) -> Widened:
        """From the interval at any level without tuning."""
        levels = LEVELS[:-1]  # at level 1 both ends are the middle, which levels near 1 give
        ends = np.array([interval(float(level)) for level in levels])
        odds = np.log(levels / 2) - np.log1p(-levels / 2)
        return cls(np.append(ends[:, 0], ends[::-1, 1]), np.append(odds, -odds[::-1]), own, other)

    def below(self, value: float) -> float:
        """P(T − P_own < value): one-sided p of a difference of `value` or less."""
        return self._mean(1.0, value + self.own.values, self.own)

    def above(self, value: float) -> float:
        """P(T + P_other > value): one-sided p of a difference of `value` or more."""
        return self._mean(-1.0, value - self.other.values, self.other)

    def _mean(self, sign: float, values: Floats, penalty: Penalty) -> float:
        return float(penalty.weights @ scipy.special.expit(sign * np.interp(values, self._at, self._odds)))

    def p(self) -> float:
        """Two-sided, of no difference."""
        return min(1.0, 2 * min(self.below(0.0), self.above(0.0)))

    def p_tie(self, margin: float) -> float:
        """Of two one-sided tests against a margin."""
        return max(self.below(-margin), self.above(margin))

    def room(self, level: float) -> float:
        """By how much the end that moved further lies outside that of the interval without tuning; maybe infinite."""
        low, high = self.ends(level)
        plain = np.interp([math.log(level / 2) - math.log1p(-level / 2)], self._odds, self._at)[0]
        other = np.interp([math.log1p(-level / 2) - math.log(level / 2)], self._odds, self._at)[0]
        return max(float(plain) - low, high - float(other), 0.0)

    def ends(self, level: float) -> tuple[float, float]:
        """Of the interval at a two-sided level; infinite beside a penalty without a bound."""
        first, last = float(self._at[0]), float(self._at[-1])
        low = _root(lambda value: self.below(value) - level / 2, first - self.own.values[-1], last)
        high = _root(lambda value: level / 2 - self.above(value), first, last + self.other.values[-1])
        return low, high


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Between two numbers; where one is infinite, that one."""
    if math.isinf(low) or math.isinf(high):
        return low if math.isinf(low) else high
    if rising(low) >= 0:
        return low
    return high if rising(high) <= 0 else float(scipy.optimize.brentq(rising, low, high))
