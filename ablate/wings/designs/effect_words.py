"""Findings of a factorial design, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.judge.findings.study_summary import EffectSummary, StudySummary
from reports.judge.sentences import listed
from reports.page.wording import training_words, words
from reports.page.wording.arm_words import left_out
from reports.page.wording.cost_words import clear_costs, costs
from reports.page.wording.table import Columns, Table
from reports.page.wording.training_words import conditions, undertrained
from store.documents import StudyDesign, StudyEffect

CORRECTIONS = {
    "holm": "With probability 95 %, every effect ever reported as better or worse for this question is right: p-values "
    "are corrected (Holm) for every effect ever judged for it, and the intervals agree with them.",
    "benjamini_hochberg": "Of the effects reported as better or worse, at most 5 % are expected to be wrong "
    "(Benjamini–Hochberg, within each judgement of this question); the intervals agree with the p-values.",
}
SAID = (
    ("better", "lowers the loss", "lower the loss"),
    ("worse", "raises the loss", "raise the loss"),
    ("stalled", "stalled in all its runs", "stalled in all their runs"),
    ("diverged", "diverged in all its runs", "diverged in all their runs"),
    ("no difference", "changes the loss by less than {margin}", "change the loss by less than {margin}"),
    ("inconclusive", "is inconclusive", "are inconclusive"),
    ("cannot tell", "cannot be judged", "cannot be judged"),
    ("no verdict", "has no verdict", "have no verdict"),
)


def headline(summary: StudySummary) -> str:
    """The answer: which factors matter, and by how much."""
    design = _design(summary)
    by: dict[str, list[EffectSummary]] = {}
    for each in summary.effects:
        by.setdefault(each.verdict, []).append(each)
    parts = []
    for verdict, one, several in SAID:
        found = by.get(verdict, [])
        if found:
            named = verdict in ("better", "worse")
            said = (one if len(found) == 1 else several).format(margin=f"{summary.study.margin or 0:g} nats")
            parts.append(f"{listed([_told(each) if named else each.effect.name for each in found])} {said}")
    terms = training_words.matched(summary)
    setup = f"with {len(design.factors)} factors in {len(summary.arms)} combinations"
    answer = f"{terms[0].upper()}{terms[1:]}, {setup}, {'; '.join(parts)}"
    qualified = f"{left_out(summary)}{undertrained(summary.study)}"
    where = f" ({conditions(summary.study)})"
    return f"{answer}{where}.{qualified}"


def _told(found: EffectSummary) -> str:
    """`gated (−0.045 ± 0.010 nats; or double × nope)`."""
    instead = f"; or {aliases(found.effect)}" if found.effect.aliases else ""
    cost = f", {said}" if (said := clear_costs(found.comparison.costs)) else ""
    return f"{found.effect.name} ({words.difference(found.comparison)}{cost}{instead})"


def sentence(summary: StudySummary, found: EffectSummary) -> str:
    """One effect with its test and its aliases."""
    comparison = found.comparison
    if comparison.difference is None:
        return f"{found.verdict}: no seed finished in all {len(summary.arms)} runs."
    value = ", ".join(
        filter(None, [words.difference(comparison), training_words.matched(summary), costs(comparison.costs)])
    )
    ground = f": {found.judgement.withheld}" if found.judgement.withheld else _ground(summary, found)
    instead = f" The runs cannot distinguish it from {aliases(found.effect)}." if found.effect.aliases else ""
    return f"{value}; {found.verdict}{ground}.{instead}"


def _ground(summary: StudySummary, found: EffectSummary) -> str:
    comparison = found.comparison
    blocks = f"{words.seed_count(len(comparison.seeds))} × {len(summary.arms)} runs"
    if found.verdict == "no difference":
        p = words.p_value(comparison.p_equivalence)
        return f" larger than {summary.study.margin:g} nats ({blocks}, {p})"
    if comparison.p_holm is None:
        return f" ({blocks})"
    tested = f" ({blocks}, {words.p_value(comparison.p_holm)})"
    if found.verdict != "inconclusive":
        return tested
    if comparison.is_barred:
        high, low = comparison.failures.arm, comparison.failures.baseline
        return f"{tested}, because seeds failed in {high} runs at the + level and {low} at the − level"
    if comparison.detectable is None:
        return f"{tested}, since {training_words.beyond(summary.study)}"
    return f"{tested}: could detect {words.detectable(comparison.detectable)} nats with 80 % power"


def aliases(effect: StudyEffect) -> str:
    """`double × qk_norm or the opposite of gqa × nope`."""
    found = (f"{'the opposite of ' * opposed}{' × '.join(alias)}" for opposed, alias in _signed_aliases(effect))
    return " or ".join(found) or words.NONE


def _signed_aliases(effect: StudyEffect) -> Iterator[tuple[bool, Sequence[str]]]:
    """Each alias, with whether the runs determine its difference from the effect rather than the sum of both."""
    for alias in effect.aliases:
        yield (len(alias) + len(effect.factors)) % 2 == 1, alias


def _design(summary: StudySummary) -> StudyDesign:
    assert summary.study.design is not None
    return summary.study.design


def method(summary: StudySummary) -> Iterator[str]:
    """Estimation and tests of effects, in words."""
    design = _design(summary)
    half = len(summary.arms) // 2
    yield (
        f"Every effect is the mean loss of {half} runs minus that of the other {half}: for a factor, runs with it "
        "minus runs without it; for an interaction, half the change that one factor makes to the effect of the other."
    )
    yield "Seeds are blocks: what a seed changes equally in all runs cancels."
    if summary.study.tuning:
        spare = len(summary.arms) - 1 - len(design.effects)
        yield (
            "Each run was tuned, and tuning adds noise that all seeds of a run share, so the error is estimated from "
            f"the {spare} contrasts between runs that estimate no effect."
        )
    yield "Better and worse are two-sided t-tests of the validation loss after the last step."
    yield CORRECTIONS[design.correction]
    if summary.study.margin is not None:
        margin = f"{summary.study.margin:g} nats"
        yield f"No difference means smaller than {margin}: two one-sided t-tests, corrected by Holm at another 5 %."


def proposal(summary: StudySummary) -> str:
    """Next step: a command that writes a study to confirm the findings."""
    survivors = [each.effect.name for each in summary.effects if each.verdict == "better"]
    if not survivors:
        return "No factor is shown to lower the loss, so there is nothing to confirm."
    command = summary.command("--promote confirm.yaml")
    what = f"confirm {listed(survivors)} with fresh seeds: `{command}` writes that study."
    return f"Effects selected by a screen look larger than they are on average, so {what}"


def closing_table(summary: StudySummary) -> Table:
    """Effect, difference, p, verdict and aliases, for a terminal."""
    columns: Columns[EffectSummary] = {
        "effect": lambda each: each.effect.name,
        "difference": lambda each: words.difference(each.comparison),
        "p (corrected)": lambda each: words.p_value(each.comparison.p_holm).removeprefix("p ").removeprefix("= "),
        "verdict": lambda each: each.verdict,
        "aliases": lambda each: (  # `−double×qk_norm`
            " or ".join("−" * minus + "×".join(names) for minus, names in _signed_aliases(each.effect)) or words.NONE
        ),
    }
    return Table.of(summary.effects, columns).without_empty()


def table(summary: StudySummary) -> Table:
    """All findings on each effect."""
    columns: Columns[EffectSummary] = {
        "effect": lambda each: each.effect.name,
        "verdict": lambda each: each.verdict,
        f"difference ({summary.unit})": lambda each: words.difference(each.comparison).removesuffix(" nats"),
        "p (corrected)": lambda each: words.p_value(each.comparison.p_holm),
        "p for equivalence (Holm)": lambda each: words.p_value(each.comparison.p_equivalence),
        f"smallest detectable ({summary.unit})": lambda each: (
            words.detectable(each.comparison.detectable) if each.comparison.detectable else words.NONE
        ),
        "speed and memory": lambda each: costs(each.comparison.costs) or words.NONE,
        "aliased with": lambda each: aliases(each.effect),
    }
    return Table.of(summary.effects, columns, labels=2).without_empty()
