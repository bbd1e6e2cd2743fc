"""The result figure of a study that is answered in a score: differences in that score instead of the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ablate.wings.science.evidence import evidence
from ablate.wings.science.judging_claims import JudgedClaim, score_asked
from ablate.wings.science.sections.claims import outcomes
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.outcomes import FAILED
from reports.judge.statistics.estimates import Estimate
from reports.page.html.ranked import Ranked, RankedRow
from reports.page.wording import words
from store.documents.claims import ACCURACY

SHOWN = ("holds", "agrees")
"""Outcomes of a claim that was found to be so."""


def ranked(summary: StudySummary, figure: Ranked) -> Ranked:
    """The figure in the score that all claims of the study are about, the highest first, if they are about one."""
    found = outcomes(summary)
    score = score_asked(found)
    if score is None or figure.is_of_effects:
        return figure
    rows = [
        _baseline(summary, row, score) if row.kind == "baseline" else _row(summary, found, row, score)
        for row in figure.rows
    ]
    rows.sort(key=lambda row: (row.difference is None, -row.difference.mean if row.difference else 0.0))
    metric = score.rpartition("/")[2].partition(" (")[0]
    sides = f"lower {metric}", f"higher {metric}"
    plotted = f"difference in {score} from {figure.base}"
    return replace(figure, rows=tuple(rows), unit=score, margin=None, sides=sides, plotted=plotted)


def _row(summary: StudySummary, claims: Sequence[JudgedClaim], row: RankedRow, score: str) -> RankedRow:
    if row.verdict in FAILED:
        return row
    found = evidence(summary, row.name, summary.baseline, score)
    effect, verdict = found.effect, found.verdict
    aside, about = "", [each for each in claims if (each.claim.arm, each.claim.against) == (row.name, summary.baseline)]
    if not about:  # what nobody claimed is not judged: it would be one more test
        verdict, aside = "no verdict", "no claim is about it"
        effect = effect and Estimate(effect.mean, None, None, None, effect.values)
    elif any(each.claim.expect == "same" and each.outcome in SHOWN for each in about):
        verdict = "no difference"
    said = "" if effect is None else words.interval(effect).removesuffix(" nats")
    return replace(row, verdict=verdict, difference=effect, said=said, aside=aside, beaten=None)


def _baseline(summary: StudySummary, row: RankedRow, score: str) -> RankedRow:
    arm, (task, _, metric) = summary.baseline_arm, score.rpartition("/")
    if score == ACCURACY:
        said = words.plus_minus(arm.accuracy)
    else:
        mean = next((each.value for each in arm.scores if (each.task, each.metric) == (task, metric)), None)
        said = "" if mean is None else f"{mean:.3f}"
    return replace(row, said=f"{metric} {said}" if said else "", beaten=None)
