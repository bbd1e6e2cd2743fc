"""A published table beside the study's findings on the same rows. Pure.

Each row is a claim of the study and is judged as one (`claims.judging`); there are no further tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from reports.judge.claims.judged_claim import JudgedClaim
from reports.judge.findings.study_summary import StudySummary
from reports.judge.noise.power import power_at
from reports.judge.verdicts import Outcome
from store.documents import StudyPublishedRow

Agreement: TypeAlias = Literal["agrees", "disagrees", "cannot tell"]
AGREEMENT: Mapping[Outcome, Agreement] = {
    "holds": "agrees",
    "does not hold": "disagrees",
    "cannot tell": "cannot tell",
    "not tested": "cannot tell",
}


@dataclass(frozen=True)
class ReplicatedRow:
    """A published row and the study's judgement of it. `power` is the probability that the study finds a difference as
    large as the published one; None if none was published in nats, or nothing was judged."""

    row: StudyPublishedRow
    judged: JudgedClaim
    power: float | None

    @property
    def outcome(self) -> Agreement:
        return AGREEMENT[self.judged.outcome]


def replicated(summary: StudySummary) -> tuple[ReplicatedRow, ...]:
    """Rows of the published table; empty if the study replicates none."""
    table = summary.study.published
    if table is None:
        return ()
    judged = summary.claims[len(summary.claims) - len(table.rows) :]
    pairs = zip(table.rows, judged, strict=True)
    return tuple(ReplicatedRow(row, each, _power(summary, row, each) if table.nats else None) for row, each in pairs)


def _power(summary: StudySummary, row: StudyPublishedRow, judged: JudgedClaim) -> float | None:
    """Power of a row; None if the noise, or the uncertainty of tuning, is unknown."""
    pair = {row.arm, row.against}
    found = next((each.comparison for each in summary.judgements if {each.arm, each.base} == pair), None)
    sized = row.expect in ("better", "worse") and judged.outcome != "not tested"
    if not found or row.difference is None or not sized:
        return None
    gap, known = found.gap, found.detectable
    if gap is None or known is None or not math.isfinite(known.value):
        return None
    return power_at(row.difference, known.value, math.hypot(gap.error, gap.shared), gap.freedom, found.tuning_room)
