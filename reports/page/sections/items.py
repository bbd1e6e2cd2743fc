"""Scores against the baseline's, item by item (`reports.judge.scores`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from reports.judge.findings.study_summary import ArmSummary, MeanScore, StudySummary, signal_to_noise
from reports.judge.reading.collected import Collected
from reports.judge.scores import ItemDifference
from reports.judge.verdicts import ALPHA
from reports.page.figures.base import NEUTRAL, Figure, optional, short, stacked
from reports.page.figures.drawing import ArmStyle, Drawing, label
from reports.page.sections import Section
from reports.page.sections._against import is_drawn
from reports.page.wording import words
from reports.page.wording.table import frame_table

COLUMNS = (
    "arm",
    "task",
    "metric",
    "verdict",
    "difference",
    "low",
    "high",
    "p (Holm)",
    "signal to noise",
    "independent items",
    "seeds",
    "note",
)


@dataclass(frozen=True)
class Items(Section):
    """Score differences by item, for summaries that have scores."""

    place: ClassVar[int] = 130

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        return None if data.scores.is_empty() else cls()

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """A forest plot: one panel per task and metric, one row per arm."""
        drawn = [
            (arm.name, item)
            for arm in summary.arms
            for item in arm.items
            if item.difference is not None and is_drawn(item, summary)
        ]
        if drawn:
            yield _figure(drawn, summary, style)


Found = list[tuple[str, ItemDifference]]
"""Differences with the names of their arms."""


def verdict(arm: ArmSummary, item: ItemDifference) -> str:
    """`better` and the like, for one score; `different` if neither direction is known to be better."""
    if arm.withheld is not None:
        return "no verdict"
    if item.difference is None or item.p is None or arm.comparison is None:
        return "cannot tell"
    if item.higher_is_better is None:
        return "different" if item.p < ALPHA else "inconclusive"
    return item.verdict(arm.comparison.failures)


def _figure(drawn: Found, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Figure:
    panels = list(dict.fromkeys((item.task, item.metric) for _, item in drawn))
    scores = {(score.task, score.metric): score for arm in summary.arms[:1] for score in arm.scores}
    titles = {}
    for _, item in reversed(drawn):
        ratio = signal_to_noise(summary.arms, item.task, item.metric)
        signal = "" if ratio is None else f" · signal to noise {ratio:.1f}"
        lines = f"{label(item.task)}: {label(item.metric)}{signal}", _details(item, summary.baseline, scores)
        titles[item.task, item.metric] = "<br>".join(filter(None, lines))
    figure = stacked(
        [titles[panel] for panel in panels], [style[arm].label for arm in dict.fromkeys(arm for arm, _ in drawn)]
    )
    for arm, item in reversed(drawn):
        _row(figure, style[arm], item, panels.index((item.task, item.metric)) + 1)
    for place in range(len(panels)):
        figure.add_vline(x=0, line=NEUTRAL, row=place + 1, col=1)
    rows = [
        (
            arm.name,
            item.task,
            item.metric,
            verdict(arm, item),
            words.NONE if item.difference is None else words.signed(item.difference, 4),
            optional(item.low),
            optional(item.high),
            words.p_value(item.p),
            optional(signal_to_noise(summary.arms, item.task, item.metric)),
            words.whole(item.items),
            ", ".join(map(str, item.seeds)),
            item.reason or "",
        )
        for arm in summary.arms
        for item in arm.items
    ]
    return Figure(
        key="eval-differences",
        title=f"Evaluation scores against {summary.baseline}, item by item",
        note=(
            "Over items and seeds, corrected (Holm) over all arms, tasks and metrics. With a single seed, over "
            "items only. Open points: seeds. Perplexities are in the table only." + words.in_groups(summary.grouped)
        ),
        alt="; ".join(f"{row[0]} {row[1]} {row[2]}: {row[4]}" for row in rows if row[1] not in summary.grouped),
        drawing=figure,
        table=frame_table(COLUMNS, rows, 4),
    )


def _details(item: ItemDifference, baseline: str, scores: Mapping[tuple[str, str], MeanScore]) -> str:
    """`pre 0.62, chance 0.50 · better →`."""
    side = {True: "better →", False: "better ←", None: ""}[item.higher_is_better]
    score = scores.get((item.task, item.metric))
    own = f"{label(baseline)} {score.value:.3g}" if score and score.value is not None else ""
    chance = f", chance {score.chance:.2g}" if own and score and score.chance is not None else ""
    return " · ".join(filter(None, (own + chance, side)))


def _row(figure: Drawing, look: ArmStyle, item: ItemDifference, place: int) -> None:
    assert item.difference is not None  # only these are drawn
    low, high = (item.difference if end is None else end for end in (item.low, item.high))
    figure.add_scatter(
        x=[short(value) for value in item.by_seed],
        y=[look.label] * len(item.by_seed),
        legendgroup=look.label,
        mode="markers",
        marker={"color": look.colour, "symbol": f"{look.symbol}-open", "size": 7},
        opacity=0.75,
        hovertemplate="seed: %{x:.4f}<extra></extra>",
        row=place,
        col=1,
    )
    figure.add_scatter(
        x=[short(item.difference)],
        y=[look.label],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [short(high - item.difference)],
            "arrayminus": [short(item.difference - low)],
            "color": look.colour,
            "thickness": 1.8,
        },
        legendgroup=look.label,
        mode="markers",
        marker={"color": look.colour, "symbol": look.symbol, "size": 11},
        hovertemplate="%{x:.4f}<extra></extra>",
        row=place,
        col=1,
    )
