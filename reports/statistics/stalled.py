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
without failure.

Simulated, failures of 2 nats in 10 % of seeds that cancel a gain of 0.2 nats, sd 0.01 (called better):

    seeds                      3      5      10     20     30
    t-test over all seeds      72 %   59 %   35 %   12 %   5 %
    overall interval           0 %    0 %    0 %    0 %    0 %
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy import special  # scipy.stats takes seconds to load

from ablate.noise.difference import Difference
from reports.statistics.estimates import ALPHA
from reports.statistics.interval import Interval


@dataclass(frozen=True)
class Reliability:
    """Failed runs of an arm, and an upper bound on their cost: ln V − the mean loss of those that trained.

    `cost` is None where no loss is known to be the worst, as of tasks that are not text.
    """

    failed: int
    runs: int
    cost: float | None = None

    def at_most(self, alpha: float = ALPHA) -> float:
        """The upper bound on the rate of failure, one-sided at 1 − α: 1 − α^(1/n) where none failed."""
        if self.failed == self.runs:
            return 1.0
        return float(special.betaincinv(self.failed + 1, self.runs - self.failed, 1 - alpha))


@dataclass(frozen=True)
class FailureRates:
    """Those of an arm and of the one that it is compared with, and which words they leave."""

    arm: Reliability
    baseline: Reliability

    @property
    def any(self) -> bool:
        return bool(self.arm.failed or self.baseline.failed)

    @property
    def may_be_better(self) -> bool:
        return not self.arm.failed

    @property
    def may_be_worse(self) -> bool:
        """Failed no less often than the baseline, which may have more seeds."""
        return self.baseline.failed * self.arm.runs <= self.arm.failed * self.baseline.runs

    @property
    def may_be_alike(self) -> bool:
        return not self.any

    def overall(self, difference: Difference | None, alpha: float = ALPHA) -> Interval | None:
        """Arm − baseline with failures, from the difference of seeds that trained in both.

        None without one, or where it is not known what a failure costs.
        """
        if difference is None or self.arm.cost is None or self.baseline.cost is None:
            return None
        low, high = difference.interval(alpha / 2)
        cost, saved = self.arm.at_most(alpha / 4) * self.arm.cost, self.baseline.at_most(alpha / 4) * self.baseline.cost
        return Interval(difference.value, low - saved, high + cost)
