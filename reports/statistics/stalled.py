"""Seeds that fail: what a mean over seeds hides, and what few seeds can say of it. Pure.

    diverged   loss ≥ ln V, or not finite: worse than guessing all tokens alike
    stalled    loss > unigram loss − 0.1: it learned how frequent tokens are, and little else

Failed runs are another population, so an average over them and the rest describes neither. Two statements replace it:

    where it trains   arm − baseline over the seeds that trained in both
    overall           the same, with what failures may cost: between Δ − π_b·(ln V − m_b) and Δ + π_a·(ln V − m_a)

π_a and π_b are upper bounds on the rates of failure (Clopper and Pearson 1934), m the mean losses of runs that trained,
and ln V the most that a failed run need cost, as a uniform guess has that loss. Δ has α/2 and each π α/4, so that the
overall interval covers with probability 1 − α, up to the error of the m.

The rule: an arm with a failed seed is never better, and no arm is worse than a baseline that failed more often, nor
without a difference where either failed. Without a failed seed *better* speaks of runs that train, and the bound on
failures belongs beside it.

No rule can do more with few seeds. An arm that fails in 10 % of seeds looks, in 0.9^n of studies, exactly like one that
never fails. Whoever calls the latter better with power w calls the former better in w·0.9^n of studies, 73 % at three
seeds, even where its failures cost all that it gains. To keep that at 5 % takes the overall interval, or 29 runs
without failure (`runs_to_exclude`). Runs of tuning and of other sizes count too, where they were to be trained alike.

Simulated, failures of 2 nats in 10 % of seeds that cancel a gain of 0.2 nats, sd 0.01 (called better):

    seeds                      3      5      10     20     30
    t-test over all seeds      72 %   59 %   35 %   12 %   5 %
    overall interval           0 %    0 %    0 %    0 %    0 %
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from reports.statistics.estimates import ALPHA, Floats, mean_interval
from reports.statistics.interval import Interval

Outcome = Literal["trained", "stalled", "diverged"]

NEAR_UNIGRAM = 0.1
"""Nats per token."""


@dataclass(frozen=True)
class Vocabulary:
    """The losses of two models that read no context, in nats per token: uniform, ln V, and token frequencies."""

    uniform: float
    unigram: float

    def outcome(self, loss: float) -> Outcome:
        if not math.isfinite(loss) or loss >= self.uniform:
            return "diverged"
        return "stalled" if loss > self.unigram - NEAR_UNIGRAM else "trained"


@dataclass(frozen=True)
class Reliability:
    """How many of an arm's runs failed, and the rate that this many leave possible."""

    failed: int
    runs: int

    def at_most(self, alpha: float = ALPHA) -> float:
        """The upper bound on the rate of failure, one-sided at 1 − α: 1 − α^(1/n) where none failed."""
        if self.failed == self.runs:
            return 1.0
        return float(stats.beta.ppf(1 - alpha, self.failed + 1, self.runs - self.failed))


@dataclass(frozen=True)
class StalledComparison:
    """Arm − baseline. `trained` is over the seeds that trained in both, None with fewer than two; so is `overall`."""

    arm: Reliability
    baseline: Reliability
    trained: Interval | None
    overall: Interval | None

    @property
    def may_be_better(self) -> bool:
        return not self.arm.failed

    @property
    def may_be_worse(self) -> bool:
        return self.baseline.failed <= self.arm.failed

    @property
    def may_be_alike(self) -> bool:
        return not (self.arm.failed or self.baseline.failed)

    def p_failures(self) -> float:
        """Fisher's exact test that both fail equally often."""
        table = [[each.failed, each.runs - each.failed] for each in (self.arm, self.baseline)]
        return float(stats.fisher_exact(table).pvalue)


def compare(
    arm: Sequence[float], baseline: Sequence[float], vocabulary: Vocabulary, alpha: float = ALPHA
) -> StalledComparison:
    """Losses of the same seeds in the same order."""
    losses = np.array([arm, baseline], dtype=np.float64)
    kept = np.array([[vocabulary.outcome(loss) == "trained" for loss in row] for row in losses])
    own, base = (Reliability(int((~row).sum()), len(row)) for row in kept)
    both = kept.all(axis=0)
    if both.sum() < 2:
        return StalledComparison(own, base, None, None)
    differences = losses[0, both] - losses[1, both]
    cost, saved = (
        rate.at_most(alpha / 4) * (vocabulary.uniform - float(row[mask].mean()))
        for rate, row, mask in zip((own, base), losses, kept, strict=True)
    )
    trained, wider = _interval(differences, alpha), _interval(differences, alpha / 2)
    return StalledComparison(own, base, trained, Interval(wider.value, wider.low - saved, wider.high + cost))


def _interval(differences: Floats, alpha: float) -> Interval:
    return Interval(*(float(value) for value in mean_interval(differences, alpha)))


def runs_to_exclude(rate: float, alpha: float = ALPHA) -> int:
    """How many runs without a failure bound its rate by `rate`: the least n with (1 − rate)^n ≤ α."""
    return math.ceil(math.log(alpha) / math.log1p(-rate))
