"""One study at several sizes: loss against compute, and the gap to the baseline (`reports.findings.ladders`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import plotly.graph_objects as go
import polars as pl

from reports.figures.base import NEUTRAL, Figure, mean_point, short
from reports.figures.style import ArmStyle, blank
from reports.findings.ladders import LadderArm, Rung, summarise_ladder
from reports.findings.shapes import StudySummary
from reports.reading.collected import Collected
from reports.reading.documents import StudyDocuments
from reports.reading.keys import KEYS, Row, RunKey
from reports.sections import Section
from reports.statistics.estimates import Estimate
from reports.wording import ladder_words, words
from reports.wording.tables import frame_table

LADDER = KEYS | {
    "size": pl.String,
    "parameters": pl.Int64,
    "flops": pl.Float64,
    "loss": pl.Float64,
    "flops_per_second": pl.Float64,
}


@dataclass(frozen=True)
class Ladder(Section):
    place: ClassVar[int] = 120
    title: ClassVar[str] = "Over sizes"

    arms: tuple[LadderArm, ...]

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Mapping[str, pl.DataFrame]:
        return {cls.name(): pl.DataFrame(list(_rows(documents)), schema=LADDER)}

    @classmethod
    def losses(cls) -> Mapping[str, Sequence[str]]:
        return {cls.name(): ("loss",)}

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        arms = summarise_ladder(data.frames[cls.name()], data.study.baseline)
        return cls(arms) if arms else None

    def introduction(self, summary: StudySummary) -> str:
        rungs = self.arms[0].rungs
        return f"The comparison above is at the largest size, {rungs[-1].size}. Over {len(rungs)} sizes:"

    def sentences(self, summary: StudySummary) -> Iterator[str]:
        yield from map(ladder_words.sentence, self.arms)

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        yield _loss_by_compute(self.arms, summary, style)
        gaps = [(arm, rung, gap) for arm in self.arms for rung, gap in arm.gaps]
        if gaps:
            yield _gap_by_compute(gaps, summary, style)


def _rows(documents: StudyDocuments) -> Iterator[Row]:
    """The runs of every size. The loss of one that diverged or is absent is null."""
    sizes = [rung for rung in documents.study.ladder if rung.axis != "length"]
    for size in sizes if len(sizes) > 1 else ():
        for arm in size.arms:
            for run in arm.runs:
                result = documents.store.read_result(run.digest)
                speed = result.tokens_per_second.median if result else None
                yield {
                    "size": size.name,
                    **RunKey(arm.name, run.seed, run.digest)._asdict(),
                    "parameters": arm.parameters,
                    "flops": arm.flops,
                    "loss": result.loss if result else None,
                    "flops_per_second": None if speed is None else speed * arm.flops_per_token,
                }


def _loss_by_compute(arms: Sequence[LadderArm], summary: StudySummary, style: Mapping[str, ArmStyle]) -> Figure:
    """Every size of every arm, the fitted power laws, and what they extrapolate to, dashed."""
    figure = blank("training FLOPs", f"validation loss ({summary.unit})")
    for arm in arms:
        look = style[arm.arm]
        _line(figure, arm, look)
        for place, rung in enumerate(rung for rung in arm.rungs if rung.loss):
            mean_point(figure, look, look.label, _exactly(rung.flops), rung.loss)
            figure.data[-1].update(legendgroup=look.label, showlegend=place == 0)
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    return Figure(
        key="ladder",
        title="Loss against compute, at every size",
        note="Bars are 95 % intervals over seeds. Lines are power laws fitted to the runs, with the interval of the"
        " line; dotted, they extrapolate to ten times the largest compute, where nothing was measured.",
        alt="; ".join(ladder_words.sentence(arm) for arm in arms),
        drawing=figure,
        table=frame_table(
            ("arm", "size", "parameters", "FLOPs", f"loss ({summary.unit})"),
            [
                (arm.arm, rung.size, words.count(rung.parameters), words.large(rung.flops), words.plus_minus(rung.loss))
                for arm in arms
                for rung in arm.rungs
            ],
            2,
        ),
    )


def _exactly(value: float) -> Estimate:
    return Estimate(value, None, None, None, (value,))


def _line(figure: go.Figure, arm: LadderArm, look: ArmStyle) -> None:
    for beyond, opacity in ((False, 0.16), (True, 0.07)):
        points = [point for point in arm.line if point.extrapolated == beyond]
        x = [short(point.flops) for point in points]
        common = {"legendgroup": look.label, "showlegend": False, "hoverinfo": "skip", "mode": "lines"}
        figure.add_scatter(
            x=x + x[::-1],
            y=[short(point.high) for point in points] + [short(point.low) for point in points[::-1]],
            fill="toself",
            fillcolor=look.fill(opacity),
            line={"width": 0},
            **common,
        )
        dash = "dot" if beyond else look.dash
        figure.add_scatter(
            x=x,
            y=[short(point.loss) for point in points],
            line={"color": look.colour, "width": 1.8, "dash": dash},
            **common,
        )


def _gap_by_compute(
    found: list[tuple[LadderArm, Rung, Estimate]], summary: StudySummary, style: Mapping[str, ArmStyle]
) -> Figure:
    """The paired difference from the baseline at every size."""
    figure = blank("training FLOPs of the baseline", f"difference in loss ({summary.unit})")
    figure.add_hline(y=0, line=NEUTRAL)
    seen: set[str] = set()
    for arm, rung, gap in found:
        look = style[arm.arm]
        mean_point(figure, look, look.label, _exactly(rung.flops), gap)
        figure.data[-1].update(legendgroup=look.label, showlegend=arm.arm not in seen)
        seen.add(arm.arm)
    figure.update_xaxes(type="log")
    return Figure(
        key="ladder-gap",
        title=f"Difference from {summary.baseline}, at every size",
        note="Below zero is better. Differences are paired by seed; bars are 95 % intervals of the mean.",
        alt="; ".join(f"{arm.arm} at {rung.size}: {ladder_words.gap(gap)}" for arm, rung, gap in found),
        drawing=figure,
        table=frame_table(
            ("arm", "size", f"difference ({summary.unit})"),
            [(arm.arm, rung.size, ladder_words.gap(gap)) for arm, rung, gap in found],
            2,
        ),
    )
