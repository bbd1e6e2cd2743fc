"""The difference of two arms, with all of its uncertainty.

    D = min L_a − min L_b = d + noise − P_a + P_b        d = mean over shared seeds of loss_a − loss_b

`error` is the standard error of d over seeds, with ν degrees of freedom; `shared` is the standard error of effects that
all seeds have in common (the held-out documents, a measured step time), which more seeds do not reduce; the penalties
P_a and P_b are what the choice of each arm's settings may have lost (`ablate.noise.penalty`). With
T ~ d + t(ν)·error + N(0, shared²), which given χ² ~ χ²(ν) is normal of variance error²·ν/χ² + shared², an interval at
level α has the ends

    low: P(T − P_a < low) = α/2        high: P(T + P_b > high) = α/2        p: the α at which one of them is zero

Neither end takes credit for the other arm's penalty, so the interval contains the one without tuning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy  # loads its parts on first use
from scipy import special  # scipy.stats takes seconds to load

from ablate.noise.fit import ROUNDING, Floats
from ablate.noise.joint import Joint, spread_of
from ablate.noise.penalty import NOTHING, Penalty
from ablate.noise.scatter import Noise


@dataclass(frozen=True)
class Difference:
    """A difference in nats, arm − other. Levels are two-sided."""

    value: float
    error: float
    freedom: int
    shared: float = 0.0
    own: Penalty = NOTHING
    other: Penalty = NOTHING
    pooled: bool = field(default=False, kw_only=True)
    """Whether `error` comes from the study's pooled noise, which other pairs share."""

    @property
    def joint(self) -> Joint | None:
        """Dependence of this test on those of other arms against the same one; None if it has noise of its own.

        Penalties are ignored: they only make errors less likely.
        """
        return Joint(self.freedom, (self.shared / self.error) ** 2) if self.pooled else None

    def below(self, value: float) -> float:
        """P(T − P_own < value): one-sided p of a difference of `value` or less."""
        return self._tail(value, self.own, 1.0)

    def above(self, value: float) -> float:
        """P(T + P_other > value): one-sided p of a difference of `value` or more."""
        return self._tail(value, self.other, -1.0)

    def _tail(self, value: float, penalty: Penalty, sign: float) -> float:
        """P(sign·(T − value) < penalty), averaged over the penalty's values and, with `shared`, over χ²."""
        if not penalty.is_bounded:
            return 1.0
        centre = sign * (value - self.value) + penalty.values
        if not self.shared:
            return float(penalty.weights @ special.stdtr(self.freedom, centre / self.error))
        stretch, weights = spread_of(self.freedom)
        scale = np.hypot(self.error * stretch, self.shared)  # (nodes of χ²,)
        return float(penalty.weights @ special.ndtr(centre[:, None] / scale[None, :]) @ weights)

    def p(self) -> float:
        """Two-sided p of no difference."""
        return min(1.0, 2 * min(self.below(0.0), self.above(0.0)))

    def p_within(self, margin: float) -> float:
        """p of two one-sided tests: small where the difference lies within ± `margin` (Schuirmann 1987)."""
        return max(self.below(-margin), self.above(margin))

    def interval(self, level: float) -> tuple[float, float]:
        """Ends of the interval at this level; infinite on the side of an unbounded penalty."""
        reach = math.hypot(self.error * -float(special.stdtrit(self.freedom, level / 2)), 10 * self.shared)
        low, high = -math.inf, math.inf
        if self.own.is_bounded:
            last = self.value - reach - 1.01 * float(self.own.values[-1])
            low = _root(lambda value: self.below(value) - level / 2, last, self.value)
        if self.other.is_bounded:
            last = self.value + reach + 1.01 * float(self.other.values[-1])
            high = _root(lambda value: level / 2 - self.above(value), self.value, last)
        return low, high

    def room(self, level: float) -> float:
        """Nats by which the penalties widen the interval at one end, the larger of the two; may be infinite."""
        plain = Difference(self.value, self.error, self.freedom, self.shared).interval(level)
        low, high = self.interval(level)
        return max(plain[0] - low, high - plain[1], 0.0)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    while rising(low) > 0:
        low -= high - low
    while rising(high) < 0:
        high += high - low
    return float(scipy.optimize.brentq(rising, low, high))


def seed_difference(differences: Floats, noise: Noise | None) -> Difference | None:
    """Difference of two arms over shared seeds.

    noise: the pooled noise of one run; None if an arm is noisier than the rest: then the error comes from the scatter
    of these differences alone. Returns None for fewer than two seeds, for equal differences at all seeds (such runs are
    not independent), and if the error is zero.
    """
    seeds = len(differences)
    if seeds < 2 or float(np.ptp(differences)) <= ROUNDING:
        return None
    if noise is None:
        error, freedom = float(np.std(differences, ddof=1)) / math.sqrt(seeds), seeds - 1
    else:
        error, freedom = noise.sd * math.sqrt(2 / seeds), noise.freedom
    return Difference(float(np.mean(differences)), error, freedom, pooled=noise is not None) if error > 0 else None
