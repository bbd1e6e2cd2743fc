"""What a study answers, in words: of its arms against the baseline, or of the effects of its design."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reports.findings.shapes import StudySummary
from reports.reading.outcomes import FAILED
from reports.wording import effect_words, tables, words


@dataclass(frozen=True)
class Finding:
    """What is said of one arm or effect. `verdict` is empty of a baseline."""

    name: str
    verdict: str
    sentence: str
    difference: str


def headline(summary: StudySummary) -> str:
    """The answer in a sentence or two."""
    design = summary.study.design
    return words.headline(summary) if design is None else effect_words.headline(summary, design)


def findings(summary: StudySummary) -> Iterator[Finding]:
    """One for each arm, the baseline first; of a design one for each effect."""
    for each in summary.effects:
        difference = words.difference(each.comparison)
        yield Finding(each.effect.name, each.verdict, effect_words.sentence(summary, each), difference)
    for arm in () if summary.effects else summary.arms:
        told = arm.verdict if arm.comparison or arm.verdict in FAILED else ""
        difference = words.difference(arm.comparison) if arm.comparison else words.plus_minus(arm.loss)
        yield Finding(arm.name, told, words.sentence(summary, arm), difference)


def closing_table(summary: StudySummary) -> tables.Rows:
    """Rows of text for a terminal, the header first."""
    if not summary.effects:
        return tables.closing_table(summary)
    found = effect_words.closing_table(summary)
    return found.columns, *found.rows
