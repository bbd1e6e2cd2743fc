"""Effects of a factorial design: the change in loss by each factor, estimated from all runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Self

from ablate.wings.designs import effect_words
from ablate.wings.designs.factorial import structure
from reports.judge.findings.study_summary import RANKS, StudySummary
from reports.judge.reading.collected import Collected
from reports.page.figures.base import (
    MOST_SEEDS,
    Figure,
    forest,
    two_lines,
)
from reports.page.figures.drawing import ArmStyle, looks
from reports.page.sections import Section
from reports.page.wording import cost_words, words
from reports.page.wording.arm_words import mark
from reports.page.wording.finding_words import SETTLED, few
from reports.page.wording.table import frame_table
from store.documents import StudyDesign


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
        """A forest plot: intervals, with seeds as open points."""
        found = [(each, each.comparison.difference) for each in summary.effects]
        if not any(value for _, value in found):
            return
        own = looks([each.effect.name for each, _ in found])
        drawn = [(own[each.effect.name], value) for each, value in found]
        figure, shown, cut = forest(f"effect on the loss ({summary.unit})", drawn)
        figure.update_traces(legendgroup=None)  # effects are not arms, which the page can highlight
        costs = [cost_words.sure_costs(each.comparison.costs) for each, _ in found]
        ticks = [
            f"{look.label}<br><span style='font-size: 11px'>{cost}</span>" if cost else two_lines(look.label)
            for (look, _), cost in zip(drawn, costs, strict=True)
        ]
        figure.update_yaxes(ticktext=ticks)

        notes = (
            "Left of zero is better. Every effect is estimated from all runs: mean with the factor minus mean without "
            "it.",
            "Bars are 95 % intervals, corrected as the verdicts are; open points show "
            f"{'single seeds' if shown == 'seeds' else shown}.",
            "Costs are given below each name." if any(costs) else "",
            cost_words.unmeasured(summary),
            cut,
        )
        rows = [
            (each.effect.name, str(seed), words.signed(effect, 4))
            for each, value in found
            if value is not None
            for seed, effect in islice(zip(each.comparison.seeds, value.values, strict=True), MOST_SEEDS)
        ]
        yield Figure(
            key="effects",
            title=_title(summary) + mark(summary),
            note=" ".join(filter(None, notes)),
            alt="; ".join(f"{each.effect.name} {words.difference(each.comparison)}" for each, _ in found),
            drawing=figure,
            table=frame_table(("effect", "seed", f"effect ({summary.unit})"), rows),
        )


def _title(summary: StudySummary) -> str:
    """`Effects on the loss: qkv_bias (−0.017 ± 0.014 nats) better; 7 effects inconclusive`."""
    by: dict[str, list[str]] = {}
    for each in sorted(summary.effects, key=lambda each: RANKS.index(each.verdict)):
        said = f" ({words.difference(each.comparison).replace(' (', ' [').replace(')', ']')})"
        named = each.effect.name + said * (each.verdict in ("better", "worse"))
        by.setdefault(SETTLED.get(each.verdict, each.verdict), []).append(named)
    parts = (f"{few(names, 'effects')} {verdict}" for verdict, names in by.items())
    return f"Effects on the loss: {'; '.join(parts)}"
