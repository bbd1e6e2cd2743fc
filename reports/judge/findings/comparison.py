"""Two arms compared, and the verdict on the first."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reports.judge.findings.costs import NO_COSTS, ArmCosts
from reports.judge.noise.difference import Difference
from reports.judge.noise.power import FUTILE
from reports.judge.statistics.estimates import Estimate, Failures
from reports.judge.statistics.interval import Interval
from reports.judge.verdicts import ALPHA, Verdict
from store.documents import LedgerTest

SHOWN = 4
"""Most decimals shown for losses in nats."""


@dataclass(frozen=True)
class Comparison:
    """An arm against the baseline. `difference` is arm − baseline in nats per token: of the means of all runs that
    trained, with one value for each of `seeds`, which trained in both. `gap` is the difference with the noise by which
    it is tested, None if it is not tested. `failures` counts the failed seeds.

    `p_holm` belongs to the difference, `p_equivalence` to the tests against the study's margin, both corrected for all
    tests of the question, looks included. They are None with fewer than two pairs, if no pair differs, and if the
    verdict is withheld. The interval of `difference` lies on one side of zero where `p_holm` is significant. A
    `repeated` test has neither. `tuning_room` is how much the noise of tuning widens the interval. `alpha` is the level
    of the look. `detectable` is the smallest true difference found with 80 % probability, with the uncertainty of so
    few seeds. `seeds_needed` more seeds would settle the pair with that probability; None if no number would, or if the
    study adds no seeds by plan. `test` is the ledger's record. If the best setting of either arm lies beyond those
    tried, the interval is unbounded on one side, `tuning_room` is infinite, and `detectable` and `seeds_needed` are
    None. `chance` is the probability that the looks still planned would settle the pair; None if none is planned, or
    if it is unknown.

    `costs` are ratios of the arm to the baseline.
    """

    difference: Estimate | None
    gap: Difference | None
    failures: Failures
    seeds: tuple[int, ...]
    alpha: float
    test: LedgerTest | None = None
    p_holm: float | None = None
    p_equivalence: float | None = None
    detectable: Interval | None = None
    seeds_needed: int | None = None
    chance: float | None = None
    repeated: bool = False
    tuning_room: float = 0.0
    costs: ArmCosts = NO_COSTS

    @property
    def shows_difference(self) -> bool:
        return self.p_holm is not None and self.p_holm < ALPHA

    @property
    def rounds_to_zero(self) -> bool:
        """Whether all differences round to zero at the decimals shown, so that the interval reads 0.0000 to 0.0000."""
        return self.difference is not None and not any(round(each, SHOWN) for each in self.difference.values)

    @property
    def waits_for_rates(self) -> bool:
        """Whether the answer depends on settings beyond those tried, so that no number of seeds would settle it."""
        if self.difference is None:
            return False
        rises = self.difference.mean > 0
        if self.gap is not None:
            return not (self.gap.own if rises else self.gap.other).is_bounded
        end = self.difference.low if rises else self.difference.high
        return end is not None and math.isinf(end) and not self.failures.any

    @property
    def is_futile(self) -> bool:
        """Whether the seeds still planned would hardly settle it."""
        return self.chance is not None and self.chance < FUTILE

    @property
    def is_barred(self) -> bool:
        """Whether a failed seed bars the verdict that the difference points to, however many seeds are added."""
        if self.difference is None:
            return False
        return bool(self.failures.arm if self.difference.mean < 0 else self.failures.baseline)


@dataclass(frozen=True)
class Judgement:
    """A comparison of two arms with the verdict on the first. `withheld` is the reason for a missing verdict."""

    arm: str
    base: str
    comparison: Comparison
    verdict: Verdict
    withheld: str | None

    @property
    def seeds_needed(self) -> int | None:
        """Number of further seeds likely to settle it; None if none would, or if it is already settled."""
        return seeds_needed(self.verdict, self.comparison)


def seeds_needed(verdict: Verdict, found: Comparison | None) -> int | None:
    if found is None or verdict != "inconclusive" or found.shows_difference:
        return None
    return found.seeds_needed
