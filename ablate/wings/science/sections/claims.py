"""Claims that the study states, each with its outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar, Self

from pydantic_core import to_jsonable_python

from ablate.wings.results.document import RecordedClaim, end, interval
from ablate.wings.science import judging_claims
from ablate.wings.science.judging_claims import JudgedClaim, judge_claims
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.judge.statistics.estimates import ends_as_json
from reports.page.sections import Section
from store.documents import JsonObject, StudyClaim

MARKS = {
    "holds": "M-6,0 L-2,5 L6,-5",
    "does not hold": "M-5,-5 L5,5 M5,-5 L-5,5",
    "agrees": "M-6,0 L-2,5 L6,-5",
    "differs": "M-6,-2.5 H6 M-6,2.5 H6 M3.5,-6.5 L-3.5,6.5",
    "cannot tell": "M-5.5,0 a5.5,5.5 0 1,0 11,0 a5.5,5.5 0 1,0 -11,0",
    "not tested": "M-6,0 H6",
}
"""SVG path of an outcome's mark, in pixels around its centre: checks, a cross, an unequal sign, a ring and a dash."""


@dataclass(frozen=True)
class Claims(Section):
    """Claims of the study."""

    place: ClassVar[int] = 12
    title: ClassVar[str] = "Claims"
    template: ClassVar[str] = "claims.html.j2"
    words: ClassVar[ModuleType] = judging_claims

    found: tuple[JudgedClaim, ...] = ()
    """Outcomes of the study's claims, in its order."""

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        return cls() if data.study.claims else None

    def judged(self, data: Collected, summary: StudySummary) -> Self:
        return type(self)(judge_claims(summary))

    @property
    def is_the_question(self) -> bool:
        """Whether all claims are about one score: then the study asks what this is."""
        return judging_claims.score_asked(self.found) is not None

    def answer(self, summary: StudySummary) -> str:
        score = judging_claims.score_asked(self.found)
        return judging_claims.in_score(self.found, score) if score else ""

    def in_terminal(self, summary: StudySummary) -> Iterator[str]:
        yield from map(judging_claims.line, self.found)

    @classmethod
    def in_json(cls, summary: StudySummary) -> JsonObject:
        return {"claims": [claim_document(each) for each in outcomes(summary)]}

    def recorded(self, summary: StudySummary) -> Mapping[str, object]:
        recorded = (
            RecordedClaim(
                **each.claim.model_dump(),
                outcome=each.outcome,
                effect=interval(each.effect),
                seen=end(each.seen),
                reason=each.reason,
            )
            for each in self.found
        )
        return {"claims": tuple(recorded)}

    def mark(self, outcome: str) -> str:
        return MARKS[outcome]


def outcomes(summary: StudySummary) -> tuple[JudgedClaim, ...]:
    """Outcomes of the study's claims, in its order."""
    section = summary.section(Claims)
    return section.found if section else ()


def claim_document(found: JudgedClaim) -> JsonObject:
    """A claim with all its fields, and its outcome."""
    effect = found.effect
    low, high = (effect and ends_as_json(effect.low, effect.high)) or (None, None)
    return {
        **{name: to_jsonable_python(getattr(found.claim, name)) for name in StudyClaim.model_fields},
        "outcome": found.outcome,
        "parameters": list(found.parameters),
        "effect": {"mean": effect.mean, "low": low, "high": high} if effect else None,
        "seen": found.seen,
        "reason": found.reason,
    }
