"""Claims that the study states, each with its outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import ClassVar, Self

from pydantic_core import to_jsonable_python

from ablate.wings.results.document import RecordedClaim, end, interval
from ablate.wings.science import judging_claims
from ablate.wings.science.evidence import ClaimEvidence, evidence
from ablate.wings.science.judging_claims import JudgedClaim, judge_claims, score_asked
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.judge.reading.outcomes import FAILED
from reports.judge.statistics.estimates import Estimate, ends_as_json
from reports.page.html.ranked import Ranked, RankedRow
from reports.page.sections import Section
from reports.page.wording import words
from store.documents import JsonObject, StudyClaim
from store.documents.claims import ACCURACY

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
        return score_asked(self.found) is not None

    def answer(self, summary: StudySummary) -> str:
        score = score_asked(self.found)
        return judging_claims.in_score(self.found, score) if score else ""

    def in_terminal(self, summary: StudySummary) -> Iterator[str]:
        yield from map(judging_claims.line, self.found)

    @classmethod
    def in_json(cls, summary: StudySummary) -> JsonObject:
        found = outcomes(summary)
        return {"asked": score_asked(found) or "loss", "claims": [claim_document(each) for each in found]}

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


# The result figure of a study that is answered in a score: differences in that score instead of the loss.

SHOWN = ("holds", "agrees")
"""Outcomes of a claim that was found to be so."""


def ranked(summary: StudySummary, figure: Ranked) -> Ranked:
    """The figure in the score that all claims of the study are about, the best first, if they are about one."""
    found = outcomes(summary)
    score = score_asked(found)
    if score is None or figure.is_of_effects:
        return figure
    others = [row.name for row in figure.rows if row.verdict not in FAILED and row.kind != "baseline"]
    judged = {name: evidence(summary, name, figure.base, score) for name in others}
    rows = [_row(summary, found, row, judged.get(row.name), score) for row in figure.rows]
    leads = {name: sum(each.ahead or (0.0, 0.0)) for name, each in judged.items()}
    rows.sort(key=lambda row: (row.difference is None, -leads.get(row.name, 0.0)))
    plotted, sides = f"difference in {score} from {figure.base}", ("lower", "higher")
    return replace(figure, rows=tuple(rows), unit=score, margin=None, sides=sides, plotted=plotted)


def _row(
    summary: StudySummary, claims: Sequence[JudgedClaim], row: RankedRow, found: ClaimEvidence | None, score: str
) -> RankedRow:
    if found is None:
        return replace(row, said=_of_baseline(summary, score)) if row.kind == "baseline" else row
    effect, verdict, aside, base = found.effect, found.verdict, "", summary.baseline
    about = [each for each in claims if {each.claim.arm, each.claim.against} == {row.name, base}]
    if not about:  # what nobody claimed is not judged: it would be one more test
        verdict, aside = "no verdict", f"no claim compares it with {base}"
        effect = effect and Estimate(effect.mean, None, None, None, effect.values)
    elif any(each.claim.expect == "same" and each.outcome in SHOWN for each in about):
        verdict = "no difference"
    said = "" if effect is None else words.interval(effect).removesuffix(" nats")
    return replace(row, verdict=verdict, difference=effect, said=said, aside=aside, beaten=None)


def _of_baseline(summary: StudySummary, score: str) -> str:
    """`accuracy 0.997 ± 0.002`."""
    arm, (task, _, metric) = summary.baseline_arm, score.rpartition("/")
    if score == ACCURACY:
        return f"{metric} {words.plus_minus(arm.accuracy)}"
    mean = next((each.value for each in arm.scores if (each.task, each.metric) == (task, metric)), None)
    return "" if mean is None else f"{metric} {mean:.3f}"
