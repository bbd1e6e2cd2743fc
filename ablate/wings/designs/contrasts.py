"""Effects of many choices from one two-level design, in which every run informs every effect. Pure.

    effect = mean(runs at +) − mean(runs at −)        SE = 2·s / √(N·n), N runs of n seeds each
    s² = Σ (y_rs − ȳ_r − ȳ_s + ȳ)² / ((N − 1)(n − 1))

All runs have the same seeds, which are blocks: a seed's common influence on all runs cancels. Assumes normal noise of
equal variance in all runs. An effect is the sum of all effects that it is aliased with.

If each run is tuned, the error of tuning is the same in all seeds of a run, and s² does not include it. Then the m
effects are judged by the scatter of the N − 1 − m contrasts between runs that no effect uses, as in designs without
replication (Box, Hunter and Hunter 2005, chapter 5):

    SE² = 4·s² / N        s² = (Σ (ȳ_r − ȳ)² − Σ N·(effect / 2)²) / (N − 1 − m)

That s² includes any interactions among those contrasts, which makes tests conservative.

p-values are corrected by Holm, or by Benjamini and Hochberg 1995 where a share of false discoveries is acceptable.
Intervals agree with either: those of `simultaneous` with Holm; with R discoveries among m effects, those at confidence
1 − R·α/m with Benjamini–Hochberg, whose false-coverage rate is α (Benjamini and Yekutieli 2005,
doi:10.1198/016214504000001907).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from reports.judge.statistics.estimates import Floats
from reports.judge.statistics.simultaneous import Evidence
from reports.judge.verdicts import ALPHA


@dataclass(frozen=True)
class EffectTest:
    """One effect, its standard error, and the error's degrees of freedom.

    `below`: the effect is unbounded below, since a run at + might have done better with settings beyond those tried.
    `above`: likewise unbounded above, because of a run at −.
    """

    value: float
    error: float
    freedom: int
    below: bool = False
    above: bool = False

    @property
    def p(self) -> float:
        """Two-sided p-value; 1 if the effect is unbounded towards zero."""
        if self.below if self.value > 0 else self.above:
            return 1.0
        return 2 * float(special.stdtr(self.freedom, -abs(self.value) / self.error))

    def p_tie(self, margin: float) -> float:
        """Larger p of two one-sided tests: small if the effect is shown to lie within ± `margin`."""
        if self.below or self.above:
            return 1.0
        return float(special.stdtr(self.freedom, (abs(self.value) - margin) / self.error))

    def interval(self, level: float) -> tuple[float, float]:
        half = -self.error * float(special.stdtrit(self.freedom, level / 2))
        return -math.inf if self.below else self.value - half, math.inf if self.above else self.value + half

    def evidence(self, p: float, alpha: float = ALPHA) -> Evidence:
        """Evidence for a correction over several effects. `p` already includes the correction for looks, each at
        `alpha`."""
        return Evidence(self.value, p, lambda level: self.interval(level * alpha / ALPHA))


def seed_effects(contrasts: ArrayLike, losses: ArrayLike) -> Floats:
    """(effects, seeds) from contrasts (effects, runs) of −1 and 1, and losses (runs, seeds)."""
    signs = np.asarray(contrasts, dtype=np.float64)
    return np.asarray(2 * signs @ np.asarray(losses, dtype=np.float64) / signs.shape[1])


def effect_tests(contrasts: ArrayLike, losses: ArrayLike, *, tuned: bool = False) -> tuple[EffectTest, ...]:
    """Test of every effect, from orthogonal contrasts (effects, runs) and losses (runs, seeds) of two seeds or more.

    tuned: each run has noise that its seeds share, so the error comes from the contrasts without an effect.
    """
    values = np.asarray(losses, dtype=np.float64)
    effects = seed_effects(contrasts, values).mean(axis=1)
    (runs, seeds), means = values.shape, values.mean(axis=1)
    if tuned:
        # the scatter of seeds misses errors of tuning: use the sum of squares between runs that no effect takes
        freedom = runs - 1 - len(effects)
        left = max(np.square(means - means.mean()).sum() - runs * np.square(effects / 2).sum(), 0.0)
        count = runs
    else:
        # residual after run and seed effects
        freedom = (runs - 1) * (seeds - 1)
        left = np.square(values - means[:, None] - values.mean(axis=0) + values.mean()).sum()
        count = values.size
    error = 2 * float(np.sqrt(left / freedom / count))
    return tuple(EffectTest(float(effect), error, freedom) for effect in effects)
