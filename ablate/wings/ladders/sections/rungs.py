"""Differences at smaller sizes and shorter lengths: do they change? (`ablate.wings.ladders.rungs`)"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import polars as pl

from ablate.wings.ladders import ladder_words
from ablate.wings.ladders.ladder_words import Worth, study_worth
from ablate.wings.ladders.rungs import Change, Gap, changes, gaps
from ablate.wings.results.document import RecordedRung, interval, range_of
from reports.judge.findings.study_summary import StudySummary
from reports.judge.findings.verdicts import REPEATED
from reports.judge.reading.collected import Collected
from reports.judge.statistics.estimates import Interval, single
from reports.page.figures.base import NEUTRAL, Figure, mean_point, short
from reports.page.figures.drawing import ArmStyle, Drawing, blank
from reports.page.sections import Section
from reports.page.wording import words
from reports.page.wording.table import frame_table
from store.documents import JsonObject

DASHES = {"size": "solid", "length": "dot"}
MARGIN = 0.08
"""Margin on the compute axis beyond the outermost rungs, as a share of its length."""


@dataclass(frozen=True)
class Rungs(Section):
    """Differences at each rung of a ladder, whether they change, and what they are worth in compute."""

    place: ClassVar[int] = 14
    title: ClassVar[str] = "Change with size and length"
    opens: ClassVar[bool] = True

    gaps: tuple[Gap, ...]
    changes: tuple[Change, ...] = ()
    worth: Worth | None = None

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        return cls(gaps(data)) if data.study.ladder else None

    def judged(self, data: Collected, summary: StudySummary) -> Self:
        repeated = {arm.name for arm in summary.arms if arm.withheld == REPEATED}
        differences = {arm.name: arm.comparison.difference for arm in summary.arms if arm.comparison}
        return replace(self, changes=changes(data, repeated), worth=study_worth(data, differences))

    def answer(self, summary: StudySummary) -> str:
        return ladder_words.clauses(self.changes)

    def beside(self, summary: StudySummary) -> Iterator[str]:
        yield from super().beside(summary)
        yield from ladder_words.conversion(self.worth)

    @property
    def effective_compute(self) -> Mapping[str, Interval]:
        return self.worth.arms if self.worth else {}

    @classmethod
    def in_json(cls, summary: StudySummary) -> JsonObject:
        found = summary.section(cls)
        return {"changes": [each.document() for each in found.changes] if found else []}

    def recorded(self, summary: StudySummary) -> Mapping[str, object]:
        """The rungs but the last that have results."""
        found = []
        for rung in summary.study.ladder:
            gaps = {gap.arm: interval(gap.difference) for gap in self.gaps if gap.rung == rung.name}
            if rung.axis is not None and gaps:
                recorded = RecordedRung(
                    name=rung.name,
                    axis=rung.axis,
                    parameters=range_of([arm.parameters_non_embedding for arm in rung.arms]),
                    tokens_per_parameter=range_of([arm.length.tokens_per_parameter for arm in rung.arms]),
                    differences={arm: each for arm, each in gaps.items() if each is not None},
                )
                found.append(recorded)
        return {"rungs": tuple(found)}

    @classmethod
    def warnings(cls, data: Collected) -> Iterator[str]:
        """Missing runs of all rungs but the last, whose missing runs are reported with the comparison."""
        for rung in data.study.ladder[:-1]:
            gone = data.rungs.filter(pl.col("rung") == rung.name, pl.col("status").is_in(["absent", "partial"]))
            planned = {arm.name: len(arm.runs) for arm in rung.arms}
            for arm, runs in planned.items():
                missing = gone.filter(arm=arm)["seed"].to_list()
                if missing:
                    seeds = f"seed{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
                    yield f"{arm} at {rung.name}: {len(missing)} of {runs} runs have no result ({seeds})."

    def introduction(self, summary: StudySummary) -> str:
        return ladder_words.introduction(summary.study, len(self.changes))

    def sentences(self, summary: StudySummary) -> Iterator[str]:
        yield from ladder_words.sentences(self.changes)

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """Every difference over the baseline's compute; solid lines join sizes, dotted lines join lengths."""
        if not self.gaps:
            return
        figure = blank("training FLOPs of the baseline", f"difference in loss ({summary.unit})")
        figure.add_hline(y=0, line=NEUTRAL)
        for arm in dict.fromkeys(gap.arm for gap in self.gaps):
            own = [gap for gap in self.gaps if gap.arm == arm]
            for axis, dash in DASHES.items():
                _join(figure, [gap for gap in own if gap.axis in (axis, None)], style[arm], dash)
            for place, gap in enumerate(own):
                mean_point(figure, style[arm], style[arm].label, single(gap.flops), gap.difference)
                figure.data[-1].set({"showlegend": place == 0})
        _name_rungs(figure, self.gaps, summary)
        figure.update_xaxes(type="log")
        rows = []
        for gap in self.gaps:
            difference, seeds = words.interval(gap.difference).removesuffix(" nats"), str(len(gap.difference.values))
            rows.append((gap.arm, gap.rung, words.large(gap.flops), difference, seeds))
        yield Figure(
            key="rungs",
            title=f"Difference from {summary.baseline} at every size and length",
            note="Below zero is better. Solid lines join sizes, dotted ones lengths. Differences are paired by seed; "
            "bars are 95 % intervals of each mean, uncorrected. Whether a difference changes is tested seed by seed, "
            "above.",
            alt="; ".join(ladder_words.sentence(each) for each in self.changes),
            drawing=figure,
            table=frame_table(
                ("arm", "rung", "FLOPs of the baseline", f"difference ({summary.unit})", "seeds"),
                rows,
                2,
            ),
        )


def _join(figure: Drawing, found: Sequence[Gap], look: ArmStyle, dash: str) -> None:
    if len(found) > 1:
        figure.add_scatter(
            x=[short(gap.flops) for gap in found],
            y=[short(gap.difference.mean) for gap in found],
            mode="lines",
            line={"color": look.colour, "width": 1.4, "dash": dash},
            legendgroup=look.label,
            showlegend=False,
            hoverinfo="skip",
        )


def _name_rungs(figure: Drawing, found: Sequence[Gap], summary: StudySummary) -> None:
    """A line at every planned rung, so that a rung without a result is visibly empty."""
    planned = {
        rung.name: next(arm.flops for arm in rung.arms if arm.name == summary.baseline) for rung in summary.study.ladder
    }
    ended = {gap.rung for gap in found}
    for name, flops in planned.items():
        figure.add_vline(x=short(flops), line={**NEUTRAL, "width": 0.5})
        # on a logarithmic axis, annotations are placed by the exponent; shapes are not
        place = {"x": math.log10(flops), "yref": "paper", "y": 0, "xanchor": "right", "yanchor": "bottom"}
        text = name if name in ended else f"{name}: no result"
        figure.add_annotation(text=text, showarrow=False, textangle=-90, **place)
    low, high = math.log10(min(planned.values())), math.log10(max(planned.values()))
    room = MARGIN * (high - low) or MARGIN
    figure.update_xaxes(range=[short(low - room), short(high + room)])
