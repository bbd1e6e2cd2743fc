"""Answer of a study, in words: its arms against the baseline, or the effects of its design."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reports.judge.findings.study_summary import RANKS, ArmSummary, EffectSummary, StudySummary
from reports.judge.findings.verdicts import UNDERTRAINED, guesses
from reports.judge.sentences import Prose, listed
from reports.page.wording import arm_words, effect_words, finding_words, short_answer, tables
from reports.page.wording.table import Rows, Table
from reports.page.wording.training_words import undertrained
from store.documents.study import UNJUDGED
from store.extensions import modules_of


@dataclass(frozen=True)
class ArmAnswer:
    """The sentence on one arm or effect, and the edits that define it."""

    name: str
    sentence: Prose
    gloss: str


def headline(summary: StudySummary) -> str:
    """Openings of sections, the answer in one sentence of at most 25 words, and what both must not be read
    without."""
    if said := _unanswered(summary):
        return said
    opening = [each.answer(summary) for each in summary.opening if not each.is_the_question]
    trend, short = " ".join(filter(None, opening)), short_answer.answer(summary)
    whole = _qualified(summary, f"{trend} {short}".strip())
    if more := len(whole.split()) - len(trend.split()) - len(short.split()):  # words of the qualifier
        short = short_answer.answer(summary, short_answer.MOST_WORDS - more)
        whole = _qualified(summary, f"{trend} {short}".strip())
    return whole


def in_full(summary: StudySummary) -> str:
    """The answer with every arm, the quantities matched, and its qualifiers."""
    if said := _unanswered(summary):
        return said
    said = effect_words().headline(summary) if summary.effects else finding_words.headline(summary)
    return _qualified(summary, said)


def _qualified(summary: StudySummary, answer: str) -> str:
    losses, references = arm_words.losses_of(summary), arm_words.read_by(summary)
    return arm_words.qualified(answer, losses, references, summary.baseline)


def beside(summary: StudySummary) -> Iterator[str]:
    """Sentences to read beside the answer: caveats of the study, those of wings, and qualifiers."""
    yield from map(str, summary.study.caveats)
    for module in modules_of(__name__):
        yield from module.beside(summary)
    yield from qualifiers(summary)


def notes(summary: StudySummary) -> Iterator[str]:
    """Lines in small print below the answer."""
    for each in summary.sections.values():
        yield from each.notes(summary)


def qualifiers(summary: StudySummary) -> Iterator[str]:
    """Sentences without which the answer would claim too much."""
    if summary.study.scale in UNJUDGED:
        return
    said_already = any(arm.withheld == UNDERTRAINED for arm in summary.arms)
    yield from filter(None, [arm_words.left_out(summary).strip()])
    if shared := summary.baseline_arm.shared:
        runs = sum(map(len, shared.values()))
        yield (
            f"{summary.baseline} has {runs} more run{'s' * (runs > 1)} from {listed(list(shared))}, of which it is an "
            "arm too: differences of these studies move together."
        )
    yield from filter(None, ["" if said_already else undertrained(summary.study).strip()])
    for each in summary.sections.values():
        yield from filter(None, each.beside(summary))


def _unanswered(summary: StudySummary) -> str:
    """Reason why there is no answer yet; empty if there is one."""
    if not any(arm.seeds or arm.failed for arm in summary.arms):
        at = f" at {summary.study.ladder[-1].name} (the rung that is compared)" if summary.study.ladder else ""
        return f"No result yet: no run{at} has ended."
    compared = [arm for arm in summary.arms if arm.comparison]
    if compared and not any(arm.seeds or arm.failed for arm in compared):
        return f"No result yet: only runs of {summary.baseline}, the baseline, have ended."
    if summary.study.scale in UNJUDGED:
        return f"A {summary.study.scale} run shows that the study works. It answers nothing: the runs are too short."
    if guesses(summary.runs):
        ended = summary.runs.filter(status="finished")
        accuracies, chances = sorted(ended["accuracy"].drop_nulls()), ended["chance"].drop_nulls()
        reached = " to ".join(dict.fromkeys(f"{each:.2g}" for each in (accuracies[0], accuracies[-1])))
        return f"No arm learned the task: accuracy is {reached}, and guessing gives {chances[0]:.2g}."
    return ""


def findings(summary: StudySummary) -> Iterator[ArmAnswer]:
    """One answer per arm, the baseline first, then by verdict; for a design, one per effect."""
    for each in sorted(summary.effects, key=_rank):
        gloss = arm_words.of_effect(summary, each.effect)
        yield ArmAnswer(each.effect.name, Prose(effect_words().sentence(summary, each)), gloss)
    if summary.effects:
        return
    for arm in sorted(summary.arms, key=lambda arm: (arm.name != summary.baseline, _rank(arm))):
        yield ArmAnswer(arm.name, Prose(finding_words.sentence(summary, arm)), arm_words.of_arm(summary, arm))


def _rank(found: ArmSummary | EffectSummary) -> int:
    return RANKS.index(found.verdict)


def closing_table(summary: StudySummary) -> Rows:
    """Rows of text for a terminal, header first."""
    return effect_words().closing_table(summary).lines if summary.effects else tables.closing_table(summary)


def compact_table(summary: StudySummary) -> Table:
    """Table for a paper: one row per arm, or per effect of a design."""
    return effect_words().closing_table(summary) if summary.effects else tables.compact_table(summary)
