"""The effects of a factorial design: what each factor does to the loss, from all runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Self

from ablate.store.documents import StudyDesign
from ablate.store.documents.design import structure
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
    two_lines,
)
from reports.figures.style import ArmStyle, blank, looks
from reports.findings.shapes import StudySummary
from reports.reading.collected import Collected
from reports.sections import Section
from reports.wording import cost_words, effect_words, title_words, words
from reports.wording.failure_words import mark
from reports.wording.table import frame_table


@dataclass(frozen=True)
class Effects(Section):
    """Effects of a design's factors; the summary judges them."""

    place: ClassVar[int] = 10
    title: ClassVar[str] = "Effects"

    design: StudyDesign

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        return cls(data.study.design) if data.study.design else None

    def introduction(self, summary: StudySummary) -> str:
        return structure(len(self.design.factors), len(summary.arms), self.design.resolution)

    def sentences(self, summary: StudySummary) -> Iterator[str]:
        if all(each.judgement.withheld is None for each in summary.effects):
            yield effect_words.proposal(summary)

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """A forest: intervals, and seeds as open points."""
        if any(each.comparison.difference for each in summary.effects):
            yield _forest(summary)


def _notes(summary: StudySummary, any_cost: bool) -> Iterator[str]:
    yield "Left of zero is better. Every effect is estimated from all runs: mean with the factor minus mean without it."
    yield f"Bars are 95 % intervals, corrected as the verdicts are; open points show {_drawn(summary)}."
    yield "Below a name stands what it costs." if any_cost else ""
    yield cost_words.unmeasured(summary)


def _drawn(summary: StudySummary) -> str:
    found = drawn_seeds([value for each in summary.effects if (value := each.comparison.difference)])
    return "single seeds" if found == "seeds" else found


def _with_cost(label: str, cost: str) -> str:
    """Label with its cost on a second line; without a cost, the label broken over two lines."""
    return f"{label}<br><span style='font-size: 11px'>{cost}</span>" if cost else two_lines(label)


def _forest(summary: StudySummary) -> Figure:
    found = [(each, each.comparison.difference) for each in summary.effects]
    style = looks([each.effect.name for each, _ in found])
    figure = blank(f"effect on the loss ({summary.unit})", "", 130 + 46 * len(found))
    for each, value in reversed(found):
        look = style[each.effect.name]
        if value is not None:
            seed_points(figure, look, value.values)
            mean_point(figure, look, "", value, None, look.label)
    figure.update_traces(legendgroup=None)  # effects are no arms, which the page can highlight
    figure.add_vline(x=0, line=NEUTRAL)
    figure.update_layout(showlegend=False, margin={"t": 16})
    cut = GOES_ON * frame_open(figure, [value for _, value in found if value is not None])
    labels = [style[each.effect.name].label for each, _ in found]
    costs = [cost_words.sure_costs(each.comparison.costs) for each, _ in found]
    name_rows(figure, labels)
    figure.update_yaxes(ticktext=[_with_cost(*row) for row in zip(labels, costs, strict=True)])
    rows = [
        (each.effect.name, str(seed), words.signed(effect, 4))
        for each, value in found
        if value is not None
        for seed, effect in islice(zip(each.comparison.seeds, value.values, strict=True), MOST_SEEDS)
    ]
    return Figure(
        key="effects",
        title=title_words.effects(summary) + mark(summary),
        note=" ".join(filter(None, [*_notes(summary, any(costs)), cut])),
        alt="; ".join(f"{each.effect.name} {words.difference(each.comparison)}" for each, _ in found),
        drawing=figure,
        table=frame_table(("effect", "seed", f"effect ({summary.unit})"), rows),
    )
