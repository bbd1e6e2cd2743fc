"""Titles of figures that state the finding."""

from __future__ import annotations

from collections.abc import Mapping

from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.sentences import listed
from reports.judge.statistics.estimates import Estimate
from reports.page.wording import cost_words, words
from reports.page.wording.input_words import conditions, continued, inputs, matched, scale_of
from reports.page.wording.reference_words import standing
from store.documents.tuning import untuned

SETTLED = {"no difference": "no relevant difference"}
"""Verdicts whose wording in titles differs."""
MOST_NAMED = 4


def trade_off(summary: StudySummary, cost: str, ratios: Mapping[str, Estimate]) -> str:
    """`mqa: 8× smaller KV cache at 512 tokens, +0.08 ± 0.02 nats, 2 seeds: inconclusive`, for the arm that saves most.

    If no saving is sure, the title is about the arm whose loss differs most.
    """
    compared = [arm for arm in summary.arms if arm.comparison and arm.comparison.difference and arm.name in ratios]
    if not compared:
        return f"Loss against {cost}"
    cheaper = [arm for arm in compared if ratios[arm.name].excludes(1) and ratios[arm.name].mean < 1]
    told = min(cheaper, key=lambda arm: ratios[arm.name].mean) if cheaper else max(compared, key=_distance)
    found = told.comparison
    assert found is not None  # only those are compared
    change = cost_words.change_of(cost, ratios[told.name])
    said = [change, words.difference(found)]
    if change.startswith((cost_words.NO_CHANGE, cost_words.SAME)):
        said.reverse()
    return f"{told.name}: {', '.join(filter(None, [*said, words.seed_count(len(found.seeds))]))}: {settled(told)}"


def _distance(arm: ArmSummary) -> float:
    assert arm.comparison is not None
    assert arm.comparison.difference is not None
    return abs(arm.comparison.difference.mean)


def settled(arm: ArmSummary) -> str:
    return SETTLED.get(arm.verdict, arm.verdict)


def verdicts(summary: StudySummary) -> str:
    """`Loss against pre: double better; post inconclusive`."""
    by: dict[str, list[str]] = {}
    for arm in summary.arms:
        if arm.comparison is not None:
            by.setdefault(settled(arm), []).append(arm.name)
    said = (f"{few(names)} {verdict}" for verdict, names in by.items())
    return f"Loss against {summary.baseline}: {'; '.join(said)}"


def few(names: list[str], what: str = "arms") -> str:
    return listed(names) if len(names) <= MOST_NAMED else f"{len(names)} {what}"


def small_print(summary: StudySummary) -> str:
    """`at equal FLOPs · 56 k parameters · 9.7 tokens per parameter · English prose · vocabulary 1,024 · context 128 ·
    5 seeds · learning rates tuned earlier · 2026-11-25`."""
    study, seeds = summary.study, max((len(arm.seeds) for arm in summary.arms), default=0)
    rates = "each arm at its own tuned learning rate" if study.tuning else untuned(study.rates).partition(",")[0]
    return " · ".join(
        [
            continued(summary) or matched(summary),
            scale_of(study),
            *inputs(summary.inputs),
            words.seed_count(seeds),
            rates,
            study.created[:10],
        ]
    )


def source(summary: StudySummary) -> str:
    """Source and conditions of a picture: `norm_placement, scale cpu · 57 k non-embedding parameters …`."""
    study, seeds = summary.study, max((len(arm.seeds) for arm in summary.arms), default=0)
    stands = standing(summary, summary.baseline)
    where = (f"{study.name}, scale {study.scale}", conditions(study), f"baseline {stands}" if stands else "")
    return " · ".join(filter(None, (*where, words.seed_count(seeds), study.created[:10])))
