"""Declared comparisons of a study between arms other than its baseline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from reports.judge.findings.comparison import Judgement
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.page.sections import Section
from reports.page.wording import words
from reports.page.wording.arm_words import losses_of, pair_note, read_by, where_it_trains


@dataclass(frozen=True)
class Contrasts(Section):
    """Contrasts from the summary, which judges them together with the other comparisons."""

    place: ClassVar[int] = 15
    title: ClassVar[str] = "Contrasts"

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        return cls() if data.study.contrasts else None

    def introduction(self, summary: StudySummary) -> str:
        return f"Declared by the study, and corrected together with the comparisons with {summary.baseline}."

    def sentences(self, summary: StudySummary) -> Iterator[str]:
        return (sentence(summary, each) for each in summary.contrasts)


def sentence(summary: StudySummary, found: Judgement) -> str:
    """`swiglu − geglu: +0.019 ± 0.029 nats; inconclusive (3 seeds, p = 0.2).`"""
    note = pair_note((found.arm, found.base), losses_of(summary), read_by(summary))
    p = f", {words.p_value(found.comparison.p_holm)}" if found.comparison.p_holm is not None else ""
    ground = f": {found.withheld}" if found.withheld else f" ({words.seed_count(len(found.comparison.seeds))}{p})"
    said = ", ".join(filter(None, [words.difference(found.comparison), where_it_trains(found.comparison), note]))
    return f"{found.arm} − {found.base}: {said}; {found.verdict}{ground}."
