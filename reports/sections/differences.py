"""The paired differences in loss, seed by seed: what verdicts rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Self

from reports.figures.base import (
    GOES_ON,
    MOST_SEEDS,
    NEUTRAL,
    Figure,
    drawn_seeds,
    frame_open,
    mean_point,
    name_rows,
    seed_points,
)
from reports.figures.style import ArmStyle, blank
from reports.findings.shapes import ArmSummary, StudySummary
from reports.reading.collected import Collected
from reports.sections import Section
from reports.statistics.estimates import Estimate
from reports.wording import rate_words, title_words, words
from reports.wording.failure_words import mark
from reports.wording.table import frame_table


@dataclass(frozen=True)
class Differences(Section):
    """Differences of arms from the baseline; every summary has these comparisons."""

    place: ClassVar[int] = 25

    @classmethod
    def summarise(cls, data: Collected) -> Self:
        return cls()

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """Intervals, and seeds as open points."""
        found = [
            (arm, arm.comparison.difference)
            for arm in summary.arms
            if arm.comparison is not None and arm.comparison.difference is not None
        ]
        if found:
            yield _figure(found, summary, style)


def _figure(found: list[tuple[ArmSummary, Estimate]], summary: StudySummary, style: Mapping[str, ArmStyle]) -> Figure:
    height, shown = 130 + 46 * len(found), drawn_seeds([value for _, value in found])
    figure = blank(f"difference in loss ({summary.unit})", "", height)
    for arm, value in reversed(found):
        seed_points(figure, style[arm.name], value.values)
        mean_point(figure, style[arm.name], "", value, None, style[arm.name].label)
    figure.add_vline(x=0, line=NEUTRAL)
    figure.update_layout(showlegend=False, margin={"t": 16})
    cut = f" {GOES_ON}" * frame_open(figure, [value for _, value in found])
    name_rows(figure, [style[arm.name].label for arm, _ in found])
    rows = [
        (arm.name, str(seed), words.signed(difference, 4))
        for arm, value in found
        if arm.comparison is not None
        for seed, difference in islice(zip(arm.comparison.seeds, value.values, strict=True), MOST_SEEDS)
    ]
    return Figure(
        key="differences",
        title=title_words.verdicts(summary) + mark(summary),
        note=f"Left of zero is better. Open points are {shown}.{cut} {rate_words.line(summary.study)}",
        alt="; ".join(f"{a.name} {words.difference(a.comparison)}" for a, _ in found if a.comparison),
        drawing=figure,
        table=frame_table(("arm", "seed", f"difference ({summary.unit})"), rows),
    )
