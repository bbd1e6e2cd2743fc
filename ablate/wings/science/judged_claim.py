"""A claim with its outcome."""

from __future__ import annotations

from dataclasses import dataclass

from reports.judge.reach.outcomes import distance
from reports.judge.sentences import Prose
from reports.judge.statistics.estimates import Estimate
from reports.judge.verdicts import Outcome
from store.documents import StudyClaim


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and its outcome.

    `effect` is the measured effect of the arm against the other: a difference in nats or in the score's unit, or a
    ratio of costs; for an order of arms, that of the deciding pair. `seen` is the smallest effect that would have been
    found with 80 % probability, in the same unit. `reason` explains the outcome in a sentence.
    """

    claim: StudyClaim
    outcome: Outcome
    effect: Estimate | None
    seen: float | None
    reason: Prose
    parameters: tuple[float, float]
    """Smallest and largest number of non-embedding parameters of the study's arms."""

    @property
    def told(self) -> str:
        """`holds`, `differs at 56 k parameters (published at 220 M)`."""
        return self.outcome + distance(self.outcome, self.parameters, self.claim.sizes)
