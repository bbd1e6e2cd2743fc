"""Outcomes of the claims that a study states, and these in words.

If the study judges a pair of arms, its verdict decides. The size that a claim names (`by`) decides only if no
difference was found; an interval that excludes it then contradicts the claim. *The same* means a difference within the
margin, so a difference that is shown, but may be within the margin, contradicts nothing. A difference that was not
found and could have been missed is *cannot tell*; one that the study does not judge is *not tested*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ablate.wings.results.document import NEAR, distance, outcome_at
from ablate.wings.science.evidence import ClaimEvidence, evidence
from ablate.wings.science.stated import origin, size, statement
from reports.judge.findings.study_summary import StudySummary
from reports.judge.findings.verdicts import why_withheld
from reports.judge.sentences import Prose
from reports.judge.statistics.estimates import Estimate
from reports.judge.verdicts import Outcome, Verdict
from reports.page.wording import words
from reports.page.wording.short_answer import MOST_WORDS
from store.documents import StudyClaim
from store.documents.claims import COSTS, LOSS

GRAVITY: tuple[Outcome, ...] = ("does not hold", "not tested", "cannot tell", "holds")
"""Precedence of outcomes among the pairs of an order: the first that occurs decides."""
SAME_MEASURED = 1.02
"""Largest factor between measured costs that count as the same."""
NO_MARGIN = "the study states no margin, so it cannot show that two losses are the same"
NO_SIZE = "the claim does not state which difference counts as none (`by`)"

Decision = tuple[Outcome, str]

SETTLED: dict[Verdict, Decision] = {
    "better": ("holds", "the study finds the difference"),
    "worse": ("does not hold", "the study finds the opposite"),
    "cannot tell": ("cannot tell", ""),
    "no verdict": ("not tested", ""),
}
"""Outcome by the verdict on the arm expected to be ahead. If the reason is empty, the evidence's reason is used."""


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


def judge_claims(summary: StudySummary) -> tuple[JudgedClaim, ...]:
    """The outcome of each claim at the size of the study's models, in the order of the study."""
    found = (_judge(summary, claim) for claim in summary.study.claims)
    return tuple(replace(each, outcome=outcome_at(each.outcome, each.parameters, each.claim.sizes)) for each in found)


def _judge(summary: StudySummary, claim: StudyClaim) -> JudgedClaim:
    if claim.expect == "stalls":
        outcome, reason = _stalls(summary, str(claim.arm))
        return JudgedClaim(claim, outcome, None, None, Prose(reason), summary.study.parameters)
    return min(
        (_judge_pair(summary, claim, *pair) for pair in claim.pairs), key=lambda each: GRAVITY.index(each.outcome)
    )


def _judge_pair(summary: StudySummary, claim: StudyClaim, arm: str, against: str | None) -> JudgedClaim:
    found = evidence(summary, arm, against, claim.measure)
    if claim.expect == "same":
        outcome, reason = _same(found, claim)
    elif claim.expect == "worse":
        outcome, reason = _ahead(found.swapped(), claim)
    else:
        outcome, reason = _ahead(found, claim)
    named = f"{arm} against {against}: " if claim.order else ""
    return JudgedClaim(claim, outcome, found.effect, found.seen, Prose(named + reason), summary.study.parameters)


def _ahead(found: ClaimEvidence, claim: StudyClaim) -> Decision:
    """Whether the arm is ahead, as claimed. found: evidence seen from the arm that the claim expects to be ahead."""
    if found.verdict in SETTLED:
        outcome, reason = SETTLED[found.verdict]
        return outcome, reason or found.reason
    by = _by(claim)
    if by is not None and found.ahead is not None and found.ahead[1] < by:
        return "does not hold", f"the interval excludes {size(claim)}"
    if found.verdict == "no difference" and (by is None or (found.alike is not None and by >= found.alike)):
        return "does not hold", "the study finds no difference"
    return "cannot tell", "no difference was found, and one as large as claimed may have been missed"


def _same(found: ClaimEvidence, claim: StudyClaim) -> Decision:
    if found.reason:
        return SETTLED[found.verdict][0], found.reason
    if claim.measure == LOSS and found.verdict == "no difference":
        return "holds", "the study finds no difference"
    size_of_none = _by(claim) or (math.log(SAME_MEASURED) if claim.measure in COSTS else None)
    # the largest difference that counts as none: for losses, the study's margin
    largest = found.alike if claim.measure == LOSS else size_of_none
    if found.ahead is not None and largest is not None:
        return _within(*found.ahead, largest)
    if found.verdict in ("better", "worse"):
        return "does not hold", "the study finds a difference"
    return "cannot tell", NO_MARGIN if claim.measure == LOSS else NO_SIZE


def _within(low: float, high: float, largest: float) -> Decision:
    """Whether an interval lies entirely within the differences that count as none, or entirely outside them."""
    if -largest <= low and high <= largest:
        return "holds", "the interval lies within the differences that count as none"
    if low > largest or high < -largest:
        return "does not hold", "the study finds a larger difference"
    return "cannot tell", "the interval lies only partly within the differences that count as none"


def _stalls(summary: StudySummary, name: str) -> Decision:
    arm = next(each for each in summary.arms if each.name == name)
    if reason := why_withheld(summary.study, summary.runs):
        return "not tested", reason
    if arm.failed == 0:
        return "does not hold", f"all {len(arm.seeds)} seeds trained"
    if arm.seeds:
        return "cannot tell", f"{arm.failed} of {arm.failed + len(arm.seeds)} seeds failed"
    return "holds", f"all {arm.failed} seeds failed"


def _by(claim: StudyClaim) -> float | None:
    """The claimed size on the scale of `ClaimEvidence.ahead`."""
    if claim.by is None:
        return None
    return math.log(claim.by) if claim.measure in COSTS else claim.by


INTRODUCTION = (
    "Stated in the study before it ran, unless marked otherwise. A claim holds or does not hold within a factor of"
    f" {NEAR:g} of the sizes of its source; at other sizes, or if these are unknown, a result agrees or differs at its"
    " own. “Cannot tell” contradicts nothing."
)


RELATIONS: dict[Outcome, dict[str, str]] = {
    "holds": {"better": "beats", "worse": "is worse than", "same": "matches"},
    "does not hold": {"better": "does not beat", "worse": "is not worse than", "same": "does not match"},
    "cannot tell": dict.fromkeys(("better", "worse", "same"), "is undecided against"),
}
RELATIONS |= {"agrees": RELATIONS["holds"], "differs": RELATIONS["does not hold"]}


def score_asked(claims: Sequence[JudgedClaim]) -> str | None:
    """The score that every claim of a study compares two arms in; None if one has another form, or is not tested."""
    measures = {each.claim.measure if each.claim.against and each.outcome in RELATIONS else LOSS for each in claims}
    measure = measures.pop() if len(measures) == 1 else LOSS
    return None if measure == LOSS or measure in COSTS else measure


def in_score(claims: Sequence[JudgedClaim], score: str) -> str:
    """`In accuracy, quarter matches attention (−0.002 ± 0.011); none is worse than attention (−0.31 ± 0.08).`"""
    said, mark = f"In {score}", ","
    for each in claims:
        by = f" ({measured(each).replace(' (', ', ').replace(')', '')})" if each.effect else ""
        clause = f"{mark} {each.claim.arm} {RELATIONS[each.outcome][str(each.claim.expect)]} {each.claim.against}{by}"
        if mark == "," or len(f"{said}{clause}".split()) <= MOST_WORDS:
            said, mark = said + clause, ";"
    return f"{said}."


def line(found: JudgedClaim) -> str:
    """A claim and its outcome on one line, for a terminal."""
    said = ", ".join(filter(None, (measured(found), could_see(found))))
    after = f" ({said})" if said else ""
    source = f" [{origin(found.claim)}]" if origin(found.claim) else ""
    outcome = f"{found.told}{after}, {found.reason}; {stated(found)}"
    return f"Claim: {statement(found.claim)}{source}: {outcome}."


def stated(found: JudgedClaim) -> str:
    """`stated 2026-11-25`, with a note if the claim was edited after a result."""
    return f"stated {found.claim.planned}" + ", edited after a result" * found.claim.edited


def measured(found: JudgedClaim) -> str:
    """The effect and its interval, in the unit of the measure."""
    if found.effect is None:
        return ""
    if found.claim.measure in COSTS:
        return ratio(found.effect)
    said = words.interval(found.effect)
    return said if found.claim.measure == LOSS else said.removesuffix(" nats")


def ratio(found: Estimate) -> str:
    """`0.97× (0.95 to 0.99)`, or `0.125×` if exact."""
    if found.sd is None or found.low is None or found.high is None:
        return f"{found.mean:.3g}×"
    digits = words.decimals(found.half_width)
    return f"{found.mean:.{digits}f}× ({found.low:.{digits}f} to {found.high:.{digits}f})"


def could_see(found: JudgedClaim) -> str:
    """`smallest detectable difference: 0.04 nats`, if the study cannot tell."""
    if found.seen is None or found.outcome != "cannot tell" or not math.isfinite(found.seen):
        return ""
    if found.claim.measure in COSTS:
        return f"smallest detectable factor: {found.seen:.3g}"
    return f"smallest detectable difference: {found.seen:.2g}{' nats' * (found.claim.measure == LOSS)}"
