"""Seeds that fail: what a mean over seeds hides, and how little a few seeds tell of failure rates. Pure.

    diverged   loss ≥ ln V, or not finite: worse than guessing all tokens alike
    stalled    loss > unigram loss − 0.1: it learned how frequent tokens are, and little else

Failed runs are another population, so an average over them and the rest describes neither. Two statements replace it:

    where it trains   arm − baseline over the seeds that trained in both
    overall           the same, with what failures may cost: between Δ − π_b·(ln V − m_b) and Δ + π_a·(ln V − m_a)

π_a and π_b are upper bounds on the failure rates (Clopper and Pearson 1934), m the mean losses of runs that trained,
and ln V, the loss of a uniform guess, the highest loss that a failed run need have. Δ has α/2 and each π α/4, so the
overall interval covers with probability 1 − α, up to the error of the m.

The rule: an arm with a failed seed is never better. No arm is worse than a baseline that failed more often, and none is
without a difference if either failed. Without a failed seed, *better* is a statement about runs that train, and the
bound on the failure rate belongs beside it.

No rule can do more with few seeds. In 0.9^n of studies, an arm that fails in 10 % of seeds looks exactly like one that
never fails. A rule that calls the latter better with power w calls the former better in w·0.9^n of studies, 73 % at
three seeds, even where its failures cost all that it gains. To keep that at 5 % takes the overall interval, or 29 runs
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
    """Failed runs of an arm, and an upper bound on the cost of a failure: ln V − the mean loss of those that trained.

    `cost` is None if no worst loss is known, as for tasks that are not text.
    """

    failed: int
    runs: int
    cost: float | None = None

    def at_most(self, alpha: float = ALPHA) -> float:
        """Upper bound on the failure rate, one-sided at 1 − α: 1 − α^(1/n) if none failed."""
        if self.failed == self.runs:
            return 1.0
        return float(special.betaincinv(self.failed + 1, self.runs - self.failed, 1 - alpha))


@dataclass(frozen=True)
class FailureRates:
    """Failure rates of an arm and its baseline, and the verdicts that they allow."""

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
        """Whether the arm failed at least as often as the baseline, as a rate: the baseline may have more seeds."""
        return self.baseline.failed * self.arm.runs <= self.arm.failed * self.baseline.runs

    @property
    def may_be_alike(self) -> bool:
        return not self.any

    def overall(self, difference: Difference | None, alpha: float = ALPHA) -> Interval | None:
        """Arm − baseline with failures, from the difference of seeds that trained in both.

        None without a difference, or if the cost of a failure is unknown.
        """
        if difference is None or self.arm.cost is None or self.baseline.cost is None:
            return None
        low, high = difference.interval(alpha / 2)
        cost, saved = self.arm.at_most(alpha / 4) * self.arm.cost, self.baseline.at_most(alpha / 4) * self.baseline.cost
        return Interval(difference.value, low - saved, high + cost)
