"""The tasks that groups are made of, such as the paradigms of BLiMP: where do arms differ, and which are at chance?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import takewhile

import plotly.graph_objects as go

from reports.figures.base import NEUTRAL, Figure, beside_row, optional, short, two_lines
from reports.figures.style import Look, blank, label
from reports.findings.shapes import Score, StudySummary
from reports.wording.tables import frame_table

MOST = 80
"""Tasks that are drawn: those in which arms lie furthest apart."""

Scores = dict[str, dict[str, Score]]
"""By task and arm."""


def tasks_of_groups(summary: StudySummary, style: dict[str, Look]) -> Figure | None:
    """A row for each task, from where the baseline is best to where it is worst."""
    metric, scores = _scores(summary)
    if len(scores) < 2:
        return None
    apart = sorted(scores, key=lambda task: _span(scores[task]), reverse=True)
    tasks = sorted(apart[:MOST], key=lambda task: _of_baseline(scores[task], summary), reverse=True)
    left_out = f" Of {len(scores)} tasks those in which arms lie furthest apart." if len(scores) > MOST else ""
    rows = [
        (task, arm, optional(score.value), optional(score.stderr), optional(score.chance))
        for task in tasks
        for arm, score in scores[task].items()
    ]
    return Figure(
        key="groups",
        title="Tasks of groups",
        note="Bars: ± one standard error, over items and seeds. Dotted: chance. In the order of the baseline's scores."
        + left_out,
        alt="; ".join(f"{task} {arm} {value}" for task, arm, value, *_ in rows),
        drawing=_drawing(metric, {task: scores[task] for task in tasks}, style),
        table=frame_table(("task", "arm", metric, "standard error", "chance"), rows, 2),
        wide=True,
    )


def _scores(summary: StudySummary) -> tuple[str, Scores]:
    """Those of the metric that most of the tasks have; of a task without a value nothing is drawn."""
    found = [
        (arm.name, score)
        for arm in summary.arms
        for score in arm.scores
        if score.task in summary.grouped and score.value is not None and score.higher_is_better
    ]
    metric = next((name for name, _ in Counter(score.metric for _, score in found).most_common(1)), "")
    scores: Scores = {}
    for arm, score in found:
        if score.metric == metric:
            scores.setdefault(score.task, {})[arm] = score
    return metric, scores


def _span(scores: dict[str, Score]) -> float:
    values = [score.value or 0.0 for score in scores.values()]
    return max(values) - min(values)


def _of_baseline(scores: dict[str, Score], summary: StudySummary) -> float:
    score = scores.get(summary.baseline) or next(iter(scores.values()))
    return score.value or 0.0


def _drawing(metric: str, scores: Scores, style: dict[str, Look]) -> go.Figure:
    shared = _first_words(scores)
    names = [two_lines(label(task.removeprefix(shared), 46)) for task in scores]
    figure = blank(
        label(" ".join(filter(None, (shared.rstrip("_"), metric)))), "", 110 + len(names) * (22 + 5 * len(style))
    )
    for number, (arm, look) in enumerate(style.items()):
        below = beside_row(number, len(style))
        found = [(place + below, of[arm]) for place, of in enumerate(scores.values()) if arm in of]
        _points(figure, look, found)
    for place, of in enumerate(scores.values()):
        chance = next(iter(of.values())).chance
        if chance is not None:
            figure.add_shape(type="line", x0=chance, x1=chance, y0=place - 0.5, y1=place + 0.5, line=NEUTRAL)
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.5], tickvals=list(range(len(names))), ticktext=names, tickfont_size=11
    )
    return figure


def _first_words(tasks: Iterable[str]) -> str:
    """`blimp_` where all of them begin with it."""
    columns = zip(*(task.split("_")[:-1] for task in tasks), strict=False)
    return "".join(f"{words[0]}_" for words in takewhile(lambda words: len(set(words)) == 1, columns))


def _points(figure: go.Figure, look: Look, found: list[tuple[float, Score]]) -> None:
    figure.add_scatter(
        x=[short(score.value or 0.0) for _, score in found],
        y=[place for place, _ in found],
        error_x={"type": "data", "array": [short(score.stderr or 0.0) for _, score in found], "thickness": 1.2},
        text=[label(score.task, 60) for _, score in found],
        name=look.label,
        legendgroup=look.label,
        mode="markers",
        marker={"color": look.colour, "symbol": look.symbol, "size": 7},
        hovertemplate="%{text}: %{x:.4f}",
    )
