"""The scores of all evaluations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from reports.judge.findings.study_summary import MeanScore, StudySummary, signal_to_noise
from reports.judge.reading.collected import Collected
from reports.page.figures.base import NEUTRAL, Figure, optional, stacked
from reports.page.figures.drawing import ArmStyle, Drawing, label
from reports.page.sections import Section
from reports.page.wording.table import frame_table


@dataclass(frozen=True)
class Scores(Section):
    """Scores of arms, for summaries that have scores."""

    place: ClassVar[int] = 80

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        return None if data.scores.is_empty() else cls()

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """One panel per task and metric, if no arm can be compared with the baseline item by item. Scores without a
        value appear only in the table."""
        compared = any(item.difference is not None for arm in summary.arms for item in arm.items)
        scores = [(arm, score) for arm in summary.arms for score in arm.scores]
        drawn = [(arm, score) for arm, score in scores if score.task not in summary.grouped]
        if compared or not drawn:
            return
        panels = list(dict.fromkeys((score.task, score.metric) for _, score in drawn))
        figure = stacked(
            [f"{label(task)}: {label(metric)}" for task, metric in panels], [look.label for look in style.values()]
        )
        chances = {(score.task, score.metric): score.chance for _, score in drawn if score.chance is not None}
        for arm, score in reversed([(arm, score) for arm, score in drawn if score.value is not None]):
            place = panels.index((score.task, score.metric)) + 1
            _score(figure, style[arm.name], score, place)
        for panel, chance in chances.items():
            figure.add_vline(x=chance, line=NEUTRAL, row=panels.index(panel) + 1, col=1)
        rows = [
            (
                *(arm.name, s.task, s.metric),
                *map(optional, (s.value, s.half_width, s.chance, signal_to_noise(summary.arms, s.task, s.metric))),
            )
            for arm, s in scores
        ]
        yield Figure(
            key="evals",
            title="Evaluation scores",
            note="Over items and seeds; with a single seed, over items only. Dotted: chance."
            + (" Tasks of groups have a figure of their own." if summary.grouped else ""),
            alt="; ".join(f"{r[0]} {r[1]} {r[2]}: {r[3]}" for r in rows if r[1] not in summary.grouped),
            drawing=figure,
            table=frame_table(("arm", "task", "metric", "score", "±", "chance", "signal to noise"), rows, 3),
        )


def _score(figure: Drawing, look: ArmStyle, score: MeanScore, place: int) -> None:
    bars = {"type": "data", "array": [score.half_width or 0], "color": look.colour, "thickness": 1.8}
    figure.add_scatter(
        x=[score.value],
        y=[look.label],
        error_x=bars,
        legendgroup=look.label,
        mode="markers",
        marker={"color": look.colour, "symbol": look.symbol, "size": 11},
        hovertemplate="%{x:.4f}<extra></extra>",
        row=place,
        col=1,
    )
