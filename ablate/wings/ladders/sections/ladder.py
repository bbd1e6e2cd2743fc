"""Three sizes or more: how loss falls with compute, and the worth of a difference (`ablate.wings.ladders.laws`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import polars as pl

from ablate.wings.ladders import ladder_words
from ablate.wings.ladders.laws import LadderArm, LinePoint, summarise_ladder
from reports.judge.findings.comparison import NO_COSTS, study_costs
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.judge.sentences import listed
from reports.judge.statistics.estimates import single
from reports.page.figures.base import Figure, mean_point, short
from reports.page.figures.drawing import ArmStyle, Attributes, Drawing, blank
from reports.page.sections import Section
from reports.page.wording import words
from reports.page.wording.table import frame_table


@dataclass(frozen=True)
class Ladder(Section):
    place: ClassVar[int] = 16
    title: ClassVar[str] = "Scaling with size"

    arms: tuple[LadderArm, ...]

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        sizes = data.rungs.filter(pl.col("axis").fill_null("size") == "size")
        if sizes["rung"].n_unique() <= 2:
            return None
        # FLOP/s of each arm over the baseline's, if its speed was measured against the baseline's
        base, costs, throughput = data.study.baseline_arm, study_costs(data), {}
        for arm in data.study.arms:
            ratio = costs.pairs.get((arm.name, base.name), NO_COSTS).training
            if ratio is not None:
                throughput[arm.name] = ratio.scaled(arm.flops_per_token / base.flops_per_token)
        return cls(summarise_ladder(sizes, base.name, throughput))

    def introduction(self, summary: StudySummary) -> str:
        planned = [size.name for size in self.arms[0].sizes]
        seen = {size.name for arm in self.arms for size in arm.sizes if size.loss}
        absent = [name for name in planned if name not in seen]
        sizes = f"{len(planned)} sizes."
        if absent:
            sizes = f"{len(seen)} of {len(planned)} sizes: no run at {listed(absent)} has ended."
        trends = sum(arm.trend is not None for arm in self.arms)
        corrected = f", corrected (Holm) over {trends} arms" if trends > 1 else ""
        return (
            f"Over {sizes} A power law with an irreducible loss needs at least four sizes. A trend of a difference "
            "is a straight line in the logarithm of compute; its interval covers noise from seeds and from sizes that "
            f"deviate from the line{corrected}. {ladder_words.rates(summary.study)}"
        ).strip()

    def sentences(self, summary: StudySummary) -> Iterator[str]:
        yield from map(ladder_words.law_sentence, self.arms)

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """Every size of every arm, with the power laws that they determine, dotted beyond the largest size."""
        figure = blank("training FLOPs", f"validation loss ({summary.unit})")
        for arm in self.arms:
            look = style[arm.arm]
            for beyond in (False, True):
                points = arm.law.line if arm.law else ()
                _line(figure, [point for point in points if point.extrapolated == beyond], look)
            for place, size in enumerate(size for size in arm.sizes if size.loss):
                mean_point(figure, look, look.label, single(size.flops), size.loss)
                figure.data[-1].set({"legendgroup": look.label, "showlegend": place == 0})
        figure.update_xaxes(type="log")
        figure.update_yaxes(type="log")
        lines = (
            " Lines are power laws with an irreducible loss, with the interval of the mean. Dotted: extrapolated by up"
            " to one step of the ladder, where nothing was measured."
        )
        rows = [
            (arm.arm, s.name, words.count(s.parameters), words.large(s.flops), words.plus_minus(s.loss))
            for arm in self.arms
            for s in arm.sizes
        ]
        yield Figure(
            key="ladder",
            title="Loss against compute, at every size",
            note="Bars are 95 % intervals over seeds."
            + (lines if any(arm.law for arm in self.arms) else " No line: the sizes do not determine a power law."),
            alt="; ".join(ladder_words.law_sentence(arm) for arm in self.arms),
            drawing=figure,
            table=frame_table(
                ("arm", "size", "parameters", "FLOPs", f"loss ({summary.unit})"),
                rows,
                2,
            ),
        )


def _line(figure: Drawing, points: Sequence[LinePoint], look: ArmStyle) -> None:
    if not points:
        return
    beyond = points[0].extrapolated
    x = [short(point.flops) for point in points]
    common: Attributes = {"legendgroup": look.label, "showlegend": False, "hoverinfo": "skip", "mode": "lines"}
    figure.add_scatter(
        x=x + x[::-1],
        y=[short(point.loss.high) for point in points] + [short(point.loss.low) for point in points[::-1]],
        fill="toself",
        fillcolor=look.fill(0.07 if beyond else 0.16),
        line={"width": 0},
        **common,
    )
    figure.add_scatter(
        x=x,
        y=[short(point.loss.value) for point in points],
        line={"color": look.colour, "width": 1.8, "dash": "dot" if beyond else look.dash},
        **common,
    )
