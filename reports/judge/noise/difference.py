"""The difference of two arms, with all of its uncertainty.

    D = min L_a − min L_b = d + noise − P_a + P_b

d is the difference of means, tested on two sides: that the arm is worse, and that it is better. The estimate and error
of a side differ only where an arm has a bad run (`noise.moderated`). `shared` is the standard error of what all
seeds have in common (the held-out documents, a measured step time), which more seeds do not reduce; the penalties P_a
and P_b are what the choice of each arm's settings may have lost (`noise.penalty`). With T ~ d + t(ν)·error +
N(0, shared²), which given χ² ~ χ²(ν) is normal of variance error²·ν/χ² + shared², an interval at level α has the ends

    low: P(T − P_a < low) = α/2        high: P(T + P_b > high) = α/2        p: the α at which one of them is zero

Neither end takes credit for the other arm's penalty, so the interval contains the one without tuning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean

import numpy as np
import scipy  # loads its submodules on first use

from reports.judge.noise import Floats, Noise

# Distribution of the loss, in nats, that a choice by tuning may have cost.

LEVELS = np.append(np.geomspace(1e-5, 0.05, 60, endpoint=False), np.linspace(0.05, 1.0, 96))
"""Upper tail probabilities at which a penalty is tabulated."""


@dataclass(frozen=True)
class Penalty:
    """Distribution of the loss due to a choice: `values` in nats, ascending, with `weights` that sum to 1."""

    values: Floats
    weights: Floats

    @classmethod
    def of(cls, values: Floats, weights: Floats) -> Penalty:
        """Compress weighted draws to the quantiles at `LEVELS`."""
        order = np.argsort(values)
        below = np.cumsum(weights[order]) - weights[order] / 2
        edges = np.append(0.0, LEVELS)
        quantiles = np.interp(1 - (edges[:-1] + edges[1:]) / 2, below, values[order])
        return cls(quantiles[::-1], np.diff(edges)[::-1])

    @property
    def is_bounded(self) -> bool:
        """False if nothing bounds the loss."""
        return bool(np.isfinite(self.values[-1]))

    @property
    def is_nothing(self) -> bool:
        """True if nothing can have been lost, as when no choice was made."""
        return float(self.values[-1]) == 0.0

    def at_most(self, most: float) -> Penalty:
        """This penalty, capped at `most` nats; an unbounded one stays unbounded."""
        return Penalty(np.minimum(self.values, most), self.weights) if self.is_bounded else self

    def plus(self, other: Penalty) -> Penalty:
        """The sum of two independent penalties."""
        if self.is_nothing or other.is_nothing:
            return other if self.is_nothing else self
        return Penalty.of(
            np.add.outer(self.values, other.values).ravel(), np.multiply.outer(self.weights, other.weights).ravel()
        )


NOTHING = Penalty(np.zeros(1), np.ones(1))
"""The penalty of an arm that chose nothing."""


UNBOUNDED = Penalty(np.full(1, math.inf), np.ones(1))
"""The penalty of an arm whose best setting may lie beyond those that were tried."""


def choice_penalty(means: Sequence[float], chosen: int, noise: Noise, draws: int = 10_000) -> Penalty:
    """Penalty of taking one of several unordered settings; `noise` is the noise of their mean losses."""
    draw = np.random.default_rng(0)
    scale = noise.sd * np.sqrt(noise.freedom / draw.chisquare(noise.freedom, (draws, 1)))
    truth = np.asarray(means) + scale * draw.normal(size=(draws, len(means)))
    return Penalty.of(truth[:, chosen] - truth.min(axis=1), np.full(draws, 1 / draws))


NODES, TAIL = 128, 1e-12
"""Number of nodes of χ² at which probabilities are integrated, and the probability beyond each of the outer ones."""


@dataclass(frozen=True)
class Side:
    """A difference as one of its two tests takes it; infinite if only an unknown, bad loss stands against the test."""

    value: float
    error: float
    freedom: float


@dataclass(frozen=True)
class Difference:
    """A difference in nats, arm − other. Levels are two-sided. worse, better: evidence that the arm is that."""

    value: float
    worse: Side
    better: Side
    shared: float = 0.0
    own: Penalty = NOTHING
    other: Penalty = NOTHING

    @classmethod
    def of(cls, value: float, error: float, freedom: float) -> Difference:
        """A difference with the same evidence on both sides."""
        return cls(value, *(Side(value, error, freedom),) * 2)

    @property
    def _wider(self) -> Side:
        known = [side for side in (self.worse, self.better) if math.isfinite(side.value)]
        return max(known, key=lambda side: side.error, default=Side(self.value, math.inf, 1.0))

    @property
    def error(self) -> float:
        """The larger standard error of the two sides, but for one with failed runs; infinite if both have some."""
        return self._wider.error

    @property
    def freedom(self) -> float:
        """Degrees of freedom of `error`."""
        return self._wider.freedom

    def below(self, value: float) -> float:
        """P(T − P_own < value): one-sided p of a difference of `value` or less."""
        return self._tail(value, self.worse, self.own, 1.0)

    def above(self, value: float) -> float:
        """P(T + P_other > value): one-sided p of a difference of `value` or more."""
        return self._tail(value, self.better, self.other, -1.0)

    def _tail(self, value: float, side: Side, penalty: Penalty, sign: float) -> float:
        """P(sign·(T − value) < penalty), averaged over the penalty's values and, with `shared`, over χ²."""
        if not (penalty.is_bounded and math.isfinite(side.value)):
            return 1.0
        centre = sign * (value - side.value) + penalty.values
        if not self.shared:
            return float(penalty.weights @ scipy.special.stdtr(side.freedom, centre / side.error))
        stretch, weights = _spread(side.freedom)
        scale = np.hypot(side.error * stretch, self.shared)  # (nodes of χ²,)
        return float(penalty.weights @ scipy.special.ndtr(centre[:, None] / scale[None, :]) @ weights)

    def p(self) -> float:
        """Two-sided p of no difference, in the direction of the estimate."""
        return min(1.0, 2 * (self.below(0.0) if self.value > 0 else self.above(0.0)))

    def p_within(self, margin: float) -> float:
        """p of two one-sided tests: small where the difference lies within ± `margin` (Schuirmann 1987)."""
        return max(self.below(-margin), self.above(margin))

    def interval(self, level: float) -> tuple[float, float]:
        """Ends of the interval at this level, around the estimate; infinite on the side of an unbounded penalty or of a
        failed run."""
        low, high = -math.inf, math.inf
        if self.own.is_bounded and math.isfinite(self.worse.value):
            last = self.worse.value - self._reach(self.worse, self.own, level)
            low = min(self.value, _root(lambda value: self.below(value) - level / 2, last, self.worse.value))
        if self.other.is_bounded and math.isfinite(self.better.value):
            last = self.better.value + self._reach(self.better, self.other, level)
            high = max(self.value, _root(lambda value: level / 2 - self.above(value), self.better.value, last))
        return low, high

    def _reach(self, side: Side, penalty: Penalty, level: float) -> float:
        student = -float(scipy.special.stdtrit(side.freedom, level / 2))
        return math.hypot(side.error * student, 10 * self.shared) + 1.01 * float(penalty.values[-1])

    def room(self, level: float) -> float:
        """Nats by which the penalties widen the interval at one end, the larger of the two; may be infinite."""
        plain = replace(self, own=NOTHING, other=NOTHING).interval(level)
        ends = zip(plain, self.interval(level), strict=True)
        return max((abs(wide - end) for end, wide in ends if math.isfinite(end)), default=0.0)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    while rising(low) > 0:
        low -= high - low
    while rising(high) < 0:
        high += high - low
    return float(scipy.optimize.brentq(rising, low, high))


@lru_cache(maxsize=256)
def _spread(freedom: float) -> tuple[Floats, Floats]:
    """√(ν/χ²) at `NODES` nodes, with weights that sum to 1: the trapezoidal rule in ln χ², whose density falls off
    smoothly on both sides."""
    low, high = np.log([2 * scipy.special.gammaincinv(freedom / 2, TAIL), scipy.special.chdtri(freedom, TAIL)])
    square = np.exp(np.linspace(low, high, NODES))
    log_density = (scipy.special.xlogy(freedom, square) - square) / 2  # of ln χ², up to a constant
    weights = np.exp(log_density - log_density.max())
    return np.sqrt(freedom / square), weights / weights.sum()


# What runs of one seed have in common, whichever arm they belong to: an analysis of variance.
#
# Standardised residuals z_as = (y_as − ȳ_a) / √V_a have the mean square MS, split into MS_s between seeds and MS_r
# within, with ν_r degrees of freedom. Seeds leave the share ρ = MS_r / MS of the variance of a difference. It counts
# the more, the less independent runs would have so large an MS_s: with f degrees of freedom for independent runs,
#
#     share = (λ·f + (1 − λ)·ν·ρ) / (λ·f + (1 − λ)·ν)    λ = min(1, 2·P(F > MS_s / MS_r) / TOGETHER)    ν = min(ν_r, f)
#
# A pair whose own differences scatter more, s_p² > ρ·(V_a + V_b), has s_p² / (V_a + V_b) in place of ρ, at most 1: arms
# that nearly copy each other have their seeds in common with each other, and not with a third.

TOGETHER = 0.1
"""Two-sided P(F) below which common seeds count."""


@dataclass(frozen=True)
class CommonSeeds:
    """λ, ρ and ν_r."""

    alone: float = 1.0
    rest: float = 1.0
    freedom: float = 0.0

    @classmethod
    def of(cls, residuals: Iterable[Mapping[Hashable, float]]) -> CommonSeeds:
        """The analysis of the standardised residuals of each arm by seed, over seeds that two arms or more have."""
        by_seed: dict[Hashable, list[float]] = {}
        for arm in residuals:
            for seed, residual in arm.items():
                by_seed.setdefault(seed, []).append(residual)
        common = [of for of in by_seed.values() if len(of) > 1]
        freedom = len(common) - 1
        rest = sum(len(of) - 1 for of in common) - (max(map(len, common), default=1) - 1)
        if freedom < 1 or rest < 1:
            return cls()
        between = sum(len(of) * fmean(of) ** 2 for of in common)
        within = sum((each - fmean(of)) ** 2 for of in common for each in of)
        if not within:  # losses rounded so that they move together
            return cls()
        tail = float(scipy.special.fdtrc(freedom, rest, between / freedom / (within / rest)))
        left = within / rest / ((between + within) / (freedom + rest))
        return cls(min(1.0, 2 * tail / TOGETHER), min(1.0, left), rest)

    def share(self, independent: float, own: float = 0.0) -> tuple[float, float]:
        """Share of the variance of a difference that common seeds leave, and its degrees of freedom.

        independent: those of independent runs. own: the variance of the pair's own differences, as a share of that of
        independent runs.
        """
        weights = self.alone * independent, (1 - self.alone) * min(self.freedom, independent)
        whole = sum(weights)
        return (weights[0] + weights[1] * max(self.rest, min(1.0, own))) / whole, whole
