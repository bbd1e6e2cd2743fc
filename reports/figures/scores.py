"""Figures of scores: the paired differences, and the evaluation tasks."""

from __future__ import annotations

import plotly.graph_objects as go

from reports.figures.base import NEUTRAL, Figure, mean_point, name_rows, optional, seed_points, stacked
from reports.figures.style import Look, blank, label
from reports.findings.shapes import Score, StudySummary
from reports.wording import words
from reports.wording.tables import frame_table


def differences(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    """Paired differences with intervals, seeds as open points."""
    found = [
        (arm, arm.comparison.difference)
        for arm in summary.arms
        if arm.comparison is not None and arm.comparison.difference is not None
    ]
    if not found:
        return None
    height = 130 + 46 * len(found)
    figure = blank(f"difference in loss ({summary.unit})", "", height)
    for arm, value in reversed(found):
        seed_points(figure, style[arm.name], value.values, [style[arm.name].label] * len(value.values))
        mean_point(figure, style[arm.name], "", value, None, style[arm.name].label)
    figure.add_vline(x=0, line=NEUTRAL)
    figure.update_layout(showlegend=False, margin_t=16)
    name_rows(figure, [style[arm.name].label for arm, _ in found])
    rows = [
        (arm.name, str(seed), words.signed(difference, 4))
        for arm, value in found
        if arm.comparison is not None
        for seed, difference in zip(arm.comparison.seeds, value.values, strict=True)
    ]
    return Figure(
        key="differences",
        title=f"Loss against {summary.baseline}, seed by seed",
        note=f"Left of zero is better. Bars are {words.confidences(summary)} intervals of the mean, open points are"
        " seeds.",
        alt="; ".join(f"{a.name} {words.difference(a.comparison)}" for a, _ in found if a.comparison),
        drawing=figure,
        table=frame_table(("arm", "seed", f"difference ({summary.unit})"), rows),
    )


def evals(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    """Scores with standard errors, one panel per task and metric. One without a value is in the table alone."""
    scores = [(arm, score) for arm in summary.arms for score in arm.scores]
    drawn = [(arm, score) for arm, score in scores if score.task not in summary.grouped]
    panels = list(dict.fromkeys((score.task, score.metric) for _, score in drawn))
    if not panels:
        return None
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
        (arm.name, s.task, s.metric, optional(s.value), optional(s.stderr), optional(s.chance)) for arm, s in scores
    ]
    return Figure(
        key="evals",
        title="Evaluation scores",
        note="Bars: ± one standard error, over items and seeds. Dotted: chance."
        + (" Tasks of groups have a figure of their own." if summary.grouped else ""),
        alt="; ".join(f"{r[0]} {r[1]} {r[2]}: {r[3]}" for r in rows if r[1] not in summary.grouped),
        drawing=figure,
        table=frame_table(("arm", "task", "metric", "score", "standard error", "chance"), rows, 3),
    )


def _score(figure: go.Figure, look: Look, score: Score, place: int) -> None:
    bars = {"type": "data", "array": [score.stderr or 0], "color": look.colour, "thickness": 1.8}
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
