"""Paired differences in loss by seed, on which verdicts rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Self

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.page.figures.base import (
    MOST_SEEDS,
    Figure,
    forest,
)
from reports.page.figures.drawing import ArmStyle
from reports.page.sections import Section
from reports.page.wording import finding_words, training_words, words
from reports.page.wording.arm_words import mark
from reports.page.wording.table import frame_table


@dataclass(frozen=True)
class Differences(Section):
    """Differences of arms from the baseline; every summary has these comparisons."""

    place: ClassVar[int] = 25

    @classmethod
    def summarise(cls, data: Collected) -> Self:
        return cls()

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """Intervals, with seeds as open points."""
        found = [
            (arm, arm.comparison.difference)
            for arm in summary.arms
            if arm.comparison is not None and arm.comparison.difference is not None
        ]
        if not found:
            return
        drawn = [(style[arm.name], value) for arm, value in found]
        figure, shown, cut = forest(f"difference in loss ({summary.unit})", drawn)
        rows = [
            (arm.name, str(seed), words.signed(difference, 4))
            for arm, value in found
            if arm.comparison is not None
            for seed, difference in islice(zip(arm.comparison.seeds, value.values, strict=True), MOST_SEEDS)
        ]
        notes = (f"Left of zero is better. Open points are {shown}.", cut, training_words.line(summary.study))
        yield Figure(
            key="differences",
            title=finding_words.verdicts(summary) + mark(summary),
            note=" ".join(filter(None, notes)),
            alt="; ".join(f"{a.name} {words.difference(a.comparison)}" for a, _ in found if a.comparison),
            drawing=figure,
            table=frame_table(("arm", "seed", f"difference ({summary.unit})"), rows),
        )
