"""Two arms compared, and the verdict on the first."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ablate.noise.difference import Difference
from ablate.store.documents import LedgerTest
from reports.findings.costs import NO_COSTS, ArmCosts
from reports.statistics.estimates import ALPHA, Estimate
from reports.statistics.interval import Interval
from reports.statistics.stalled import FailureRates
from reports.verdicts import Verdict

SHOWN = 4
"""Decimals of losses in nats, at most."""


@dataclass(frozen=True)
class Comparison:
    """An arm against the baseline, seed by seed. `difference` is arm − baseline, in nats per token.

    It is over the `seeds` that trained in both, odd ones left out, and `gap` says what it is tested by, None where it
    is not. `failures` counts the other seeds, and `overall` is the difference with what they may cost.

    `p_holm` is that of the difference, `p_equivalence` that of the tests against the study's margin, both corrected for
    all that was judged for the question, looks included; they are None with fewer than two pairs or none that differ,
    and where the verdict is withheld. The interval of `difference` lies on one side of zero where `p_holm` is
    significant. A test that is `repeated` has neither. `tuning_room` is how much further the interval reaches for the
    noise of tuning. `alpha` is the level of its look. `detectable` is the smallest true difference that was found with
    80 % probability, as far as the scatter of so few seeds says it; so many `seeds_needed` more would settle the pair
    with that probability, None where none would or where seeds are not added by plan. `test` is what the ledger keeps.
    Where the best setting of either lies beyond those that were tried, the interval has no end on one side, the room is
    infinite, and neither of those two is known.

    `costs` are ratios of the arm to the baseline.
    """

    difference: Estimate | None
    gap: Difference | None
    failures: FailureRates
    overall: Interval | None
    seeds: tuple[int, ...]
    alpha: float
    test: LedgerTest | None = None
    p_holm: float | None = None
    p_equivalence: float | None = None
    detectable: Interval | None = None
    seeds_needed: int | None = None
    repeated: bool = False
    tuning_room: float = 0.0
    usual: bool = True
    """False where odd seeds of either arm are left out: what is said holds for runs that go well."""
    costs: ArmCosts = NO_COSTS

    @property
    def shows_difference(self) -> bool:
        return self.p_holm is not None and self.p_holm < ALPHA

    @property
    def shows_no_difference(self) -> bool:
        """None as large as the margin."""
        return self.p_equivalence is not None and self.p_equivalence < ALPHA

    @property
    def has_equal_losses(self) -> bool:
        """Whether every seed ended with the same loss in both: the arms compute the same."""
        return self.difference is not None and not any(self.difference.values)

    @property
    def shows_nothing(self) -> bool:
        """Whether no seed's losses differ by what numbers of nats show, so that its interval is 0.0000 to 0.0000."""
        return self.difference is not None and not any(round(each, SHOWN) for each in self.difference.values)

    @property
    def waits_for_rates(self) -> bool:
        """Whether settings beyond those that were tried decide, so that no number of seeds would."""
        if self.difference is None:
            return False
        end = self.difference.low if self.difference.mean > 0 else self.difference.high
        return end is not None and math.isinf(end)


@dataclass(frozen=True)
class Judgement:
    """A comparison of two arms with its verdict on the first; `withheld` is why there is none."""

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
