"""Findings of a study in words: one sentence per arm, the answer to the question, and titles of figures."""

from __future__ import annotations

import math
from collections.abc import Mapping

from reports.judge.findings.comparison import Comparison
from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.reading.outcomes import FAILED
from reports.judge.sentences import listed
from reports.judge.statistics.estimates import Estimate
from reports.page.wording import arm_words, cost_words, training_words, words
from reports.page.wording.arm_words import standing
from reports.page.wording.cost_words import clear_costs, costs
from reports.page.wording.training_words import (
    but_for,
    conditions,
    continued,
    inputs,
    matched,
    scale_of,
    terms,
    undertrained,
)
from reports.page.wording.words import (
    decimals,
    detectable,
    difference,
    more_seeds,
    nats,
    p_value,
    plus_minus,
    seed_count,
    signed,
)
from store.documents.tuning import untuned


def sentence(summary: StudySummary, arm: ArmSummary) -> str:
    """One arm's finding: difference with interval, costs, verdict and detectable difference."""
    comparison = arm.comparison
    if comparison is None:
        spread = f"{'95 % interval over ' * (len(arm.seeds) > 1)}{seed_count(len(arm.seeds))}"
        said = f"{plus_minus(arm.loss)} nats per {summary.study.per} ({spread})" if arm.loss else ""
        own = (said or "no seed finished", answers(arm), arm_words.failed(arm))
        what = "the baseline" if arm.name == summary.baseline else "a run of the design"
        return f"{what}: {', '.join(filter(None, own))}."
    if arm.verdict in FAILED:
        return f"{arm_words.failed(arm)}."
    if comparison.difference is None:
        return f"{arm.verdict}: no seed trained in both {arm.name} and {summary.baseline}."
    measured = f"{difference(comparison)} {terms(summary, arm)}"
    parts = (measured, arm_words.where_it_trains(comparison), answers(arm), costs(comparison.costs))
    said = ", ".join(filter(None, parts))
    ground = f": {arm.withheld}." if arm.withheld else _ground(summary, arm, comparison)
    return f"{said}; {arm.verdict}{ground}"


def answers(arm: ArmSummary) -> str:
    """`accuracy 0.982 ± 0.011, 0.031 ± 0.004 nats above the floor`; empty for text, which has neither."""
    accuracy = f"accuracy {plus_minus(arm.accuracy)}" if arm.accuracy else ""
    excess = f"{plus_minus(arm.excess)} nats above the floor" if arm.excess else ""
    return ", ".join(filter(None, [accuracy, excess]))


def _ground(summary: StudySummary, arm: ArmSummary, comparison: Comparison) -> str:
    """Reason for the verdict."""
    pairs = seed_count(len(comparison.seeds))
    if arm.verdict == "cannot tell":
        alike = "have the same loss in both arms, which compute the same"
        if comparison.difference is None or any(comparison.difference.values):
            alike = "give the same difference, so they are not independent"
        return f" with {pairs}." if len(comparison.seeds) == 1 else f": all {pairs} {alike}."
    tested = f"{pairs}, {p_value(comparison.p_holm)}"
    if arm.verdict == "no difference":
        return f" larger than {summary.study.margin:g} nats ({pairs}, {p_value(comparison.p_equivalence)})."
    if arm.verdict != "inconclusive":
        return f" ({tested})."
    if comparison.is_barred:
        return f" ({tested}), because {arm_words.because(summary, arm)}."
    assert comparison.difference is not None  # an inconclusive arm has a p
    excluded = f" ({tested}): {_excluded(comparison.difference)}"
    if comparison.detectable is None:
        return f"{excluded}, since {training_words.beyond(summary.study)}."
    planned = f"; {more_seeds(arm.seeds_needed)}" if arm.seeds_needed is not None else ""
    return f"{excluded}; could detect {detectable(comparison.detectable)} nats with 80 % power{planned}."


def _excluded(value: Estimate) -> str:
    assert value.low is not None
    assert value.high is not None
    known = [end for end in (value.low, value.high) if math.isfinite(end)]
    if len(known) == 2:
        return f"excludes differences larger than {nats(max(map(abs, known)))}"
    if not known:
        return "excludes nothing"
    side = "below" if math.isfinite(value.low) else "above"
    return f"excludes only differences {side} {signed(known[0], decimals(known[0]))} nats"


def verdict(summary: StudySummary, arm: ArmSummary) -> str:
    """Verdict for a table: `inconclusive (+11 seeds)` if so many would probably settle it, `no difference > 0.01`."""
    if arm.verdict == "no difference":
        return f"no difference > {summary.study.margin:g}"
    return f"{arm.verdict} (+{seed_count(arm.seeds_needed)})" if arm.seeds_needed else arm.verdict


FEW = 3
"""Most arms with one verdict that the headline gives numbers for; with more, only the best has them."""


MOST_NAMED = 6
"""Most arms with one verdict that the headline names; with more, it names the best and counts the others."""


def headline(summary: StudySummary) -> str:
    """The answer to the study's question, as far as the results allow, with the quantities matched and the
    conditions."""
    by: dict[str, list[ArmSummary]] = {}
    for arm in summary.arms:
        by.setdefault(arm.verdict, []).append(arm)
    base = summary.baseline
    margin = f"larger than {summary.study.margin or 0:g} nats"
    clauses = (
        ("better", f"reached a lower loss than {base}", ""),
        ("worse", f"reached a higher loss than {base}", ""),
        ("stalled", "stalled near the loss of a unigram model", ""),
        ("diverged", "diverged", ""),
        ("no difference", f"shows no difference from {base} {margin}", f"show no difference from {base} {margin}"),
        ("inconclusive", f"is inconclusive against {base}", f"are inconclusive against {base}"),
        ("cannot tell", f"cannot be compared with {base}", ""),
        ("no verdict", "has no verdict", "have no verdict"),
    )
    parts = [
        f"{_named(summary, by[verdict])} {several if several and len(by[verdict]) > 1 else one}"
        for verdict, one, several in clauses
        if verdict in by
    ]
    if not parts:
        reached = f"{base} reached {plus_minus(summary.arms[0].loss)} nats per {summary.study.per}"
        return f"The study has a single arm, so nothing is compared: {reached}."
    under = continued(summary) or f"{matched(summary)}{but_for(summary)}"
    answer = f"{under[0].upper()}{under[1:]}, {'; '.join(parts)}"
    where = f" ({conditions(summary.study)})"
    qualified = f"{arm_words.left_out(summary)}{undertrained(summary.study)}"
    opening = [section.answer(summary) for section in summary.opening]
    others = [each for each in summary.sections.values() if all(each is not first for first in summary.opening)]
    closing = [section.answer(summary) for section in others]
    return " ".join(filter(None, (*opening, f"{answer}{where}.{qualified}", *closing)))


def _named(summary: StudySummary, arms: list[ArmSummary]) -> str:
    """Names of the arms, with differences in brackets for a few, or for the best of many, and with costs if they
    matter."""
    differences = {arm.name: arm.comparison.difference for arm in arms if arm.comparison and arm.comparison.difference}
    lowest = min(arms, key=lambda arm: differences[arm.name].mean if arm.name in differences else 0.0)
    told = arms if len(arms) <= FEW else [lowest]
    named = arms if len(arms) <= MOST_NAMED else told
    said = []
    for arm in named:
        numbers = ""
        if arm in told and arm.comparison is not None and arm.name in differences:
            # brackets, since the parentheses are taken
            parts = [difference(arm.comparison).replace(" (", " [").replace(")", "]")]
            if arm.verdict in ("better", "worse") or len(summary.arms) == 2:
                parts.append(clear_costs(arm.comparison.costs))
            numbers = f" ({', '.join(filter(None, parts))})"
        said.append(f"{arm.name}{numbers}")
    return listed([*said, *([f"{len(arms) - len(named)} others"] if len(named) < len(arms) else [])])


SETTLED = {"no difference": "no relevant difference"}
"""Verdicts whose wording in titles differs."""
MOST_IN_TITLE = 4


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
    return listed(names) if len(names) <= MOST_IN_TITLE else f"{len(names)} {what}"


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
