"""The shape of a claim with what the study says of it."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.store.documents import StudyClaim
from reports.statistics.estimates import Estimate
from reports.verdicts import Outcome
from reports.wording.markup import Prose


@dataclass(frozen=True)
class JudgedClaim:
    """A claim and its outcome.

    `effect` is the measured one, of the arm against the other: a difference in nats or in the score's unit, or a ratio
    of costs; of an order, that of the pair which decided. `seen` is the smallest effect that would have been found with
    80 % probability, in the same unit. `reason` says in a sentence what decided.
    """

    claim: StudyClaim
    outcome: Outcome
    effect: Estimate | None
    seen: float | None
    reason: Prose
