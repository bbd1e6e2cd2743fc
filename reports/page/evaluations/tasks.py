"""lm-eval tasks: those without data, and the members of groups such as BLiMP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar, Self

import polars as pl

from reports.judge.findings.study_summary import MeanScore, StudySummary
from reports.judge.reading.collected import Collected
from reports.judge.reading.documents import StudyDocuments
from reports.judge.reading.evaluations import KEYS
from reports.page.evaluations import EvaluationSection
from reports.page.figures.base import NEUTRAL, Figure, beside_row, optional, short, two_lines
from reports.page.figures.drawing import ArmStyle, Drawing, blank, label
from reports.page.wording.table import frame_table
from store.tables import Schema

MOST = 80
"""Most tasks drawn: those in which arms differ most."""

Scores = dict[str, dict[str, MeanScore]]
"""Scores by task and arm."""


@dataclass(frozen=True)
class Tasks(EvaluationSection):
    """Scores within groups: where arms differ, and which tasks are at chance. The scores of single tasks and of groups
    are drawn with those of all evaluations (`reports.page.sections.scores`)."""

    place: ClassVar[int] = 90
    schema: ClassVar[Schema] = {"task": pl.String, "group": pl.String, "reason": pl.String}
    """One row per task without data; `group` is the largest group whose score lacks the task, null if there is none."""

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Mapping[str, pl.DataFrame]:
        rows = []
        for run in documents.evaluated:
            for task, reason in run.document.skipped.items():
                lacking = {name: len(of.missing) for name, of in run.document.groups.items() if task in of.missing}
                group = max(lacking, key=lacking.__getitem__, default=None)
                rows.append(run.key.row({"task": task, "group": group, "reason": reason}))
        return {cls.name(): pl.DataFrame(rows, schema=KEYS | cls.schema)}

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        return None if data.scores.is_empty() else cls()

    @classmethod
    def warnings(cls, data: Collected) -> Iterator[str]:
        """Per group, the number of tasks missing from its score; per other task, the reason why it has no score."""
        gone = data.frames[cls.name()].unique(["task", "group"], maintain_order=True)
        for (group,), tasks in gone.group_by("group", maintain_order=True):
            if group is None:
                reasons = tasks["task", "reason"].iter_rows()
                yield from (f"{task} was not evaluated: {reason}." for task, reason in reasons)
            else:
                first = tasks.row(0, named=True)
                are, example = "is" if tasks.height == 1 else "are", f"for example {first['task']}: {first['reason']}."
                if group in data.scores["task"]:
                    yield f"{group}: {tasks.height} of its tasks {are} not in its score, {example}"
                else:
                    yield f"{group} was not evaluated: none of its {tasks.height} tasks was, {example}"

    def figures(self, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Iterator[Figure]:
        """One row per task with a value, in descending order of the baseline's score."""
        found = [
            (arm.name, score)
            for arm in summary.arms
            for score in arm.scores
            if score.task in summary.grouped and score.value is not None and score.higher_is_better
        ]
        # the most common metric
        metric = next((name for name, _ in Counter(score.metric for _, score in found).most_common(1)), "")
        scores: Scores = {}
        for arm, score in found:
            if score.metric == metric:
                scores.setdefault(score.task, {})[arm] = score
        if len(scores) > 1:
            yield _figure(metric, scores, summary, style)


def _figure(metric: str, scores: Scores, summary: StudySummary, style: Mapping[str, ArmStyle]) -> Figure:
    values = {task: {arm: score.value or 0.0 for arm, score in of.items()} for task, of in scores.items()}
    spans = {task: max(of.values()) - min(of.values()) for task, of in values.items()}
    best = {task: of.get(summary.baseline, next(iter(of.values()))) for task, of in values.items()}
    apart = sorted(scores, key=spans.__getitem__, reverse=True)
    tasks = sorted(apart[:MOST], key=best.__getitem__, reverse=True)
    left_out = f" Shown: of {len(scores)} tasks, those in which arms differ most." if len(scores) > MOST else ""
    rows = [
        (task, arm, optional(score.value), optional(score.half_width), optional(score.chance))
        for task in tasks
        for arm, score in scores[task].items()
    ]
    return Figure(
        key="groups",
        title="Tasks of groups",
        note="Bars: 95 % intervals over items and seeds. Dotted: chance. Sorted by the baseline's scores." + left_out,
        alt="; ".join(f"{task} {arm} {value}" for task, arm, value, *_ in rows),
        drawing=_drawing(metric, {task: scores[task] for task in tasks}, style),
        table=frame_table(("task", "arm", metric, "±", "chance"), rows, 2),
        wide=True,
    )


def _drawing(metric: str, scores: Scores, style: Mapping[str, ArmStyle]) -> Drawing:
    columns = zip(*(task.split("_")[:-1] for task in scores), strict=False)
    # prefix such as `blimp_` that all share
    shared = "".join(f"{each[0]}_" for each in takewhile(lambda each: len(set(each)) == 1, columns))
    names = [two_lines(label(task.removeprefix(shared), 46)) for task in scores]
    figure = blank(
        label(" ".join(filter(None, (shared.rstrip("_"), metric)))), "", 110 + len(names) * (22 + 5 * len(style))
    )
    for number, (arm, look) in enumerate(style.items()):
        below = beside_row(number, len(style))
        found = [(place + below, of[arm]) for place, of in enumerate(scores.values()) if arm in of]
        figure.add_scatter(
            x=[short(score.value or 0.0) for _, score in found],
            y=[place for place, _ in found],
            error_x={"type": "data", "array": [short(score.half_width or 0.0) for _, score in found], "thickness": 1.2},
            text=[label(score.task, 60) for _, score in found],
            name=look.label,
            legendgroup=look.label,
            mode="markers",
            marker={"color": look.colour, "symbol": look.symbol, "size": 7},
            hovertemplate="%{text}: %{x:.4f}",
        )
    for place, of in enumerate(scores.values()):
        chance = next(iter(of.values())).chance
        if chance is not None:
            figure.add_shape(type="line", x0=chance, x1=chance, y0=place - 0.5, y1=place + 0.5, line=NEUTRAL)
    figure.update_yaxes(
        range=[len(names) - 0.5, -0.5], tickvals=list(range(len(names))), ticktext=names, tickfont={"size": 11}
    )
    return figure
