"""The small figure of a study on the index: the paired differences with their intervals."""

from __future__ import annotations

import plotly.graph_objects as go

from reports.figures.base import NEUTRAL, frame_open, mean_point
from reports.figures.style import blank, looks
from reports.findings.shapes import StudySummary

MOST = 8
"""Arms or effects drawn: those whose mean is farthest from the baseline's."""


def small_differences(summary: StudySummary) -> go.Figure | None:
    """None where nothing was paired."""
    judged = [(arm.name, arm.comparison) for arm in summary.arms]
    judged = [(each.effect.name, each.comparison) for each in summary.effects] or judged
    style = looks([name for name, _ in judged])
    found = [
        (style[name], comparison.difference)
        for name, comparison in judged
        if comparison is not None and comparison.difference is not None
    ]
    if not found:
        return None
    farthest = sorted(found, key=lambda each: -abs(each[1].mean))[:MOST]
    figure = blank("", "", 48 + 22 * len(farthest))
    for look, difference in reversed([each for each in found if each in farthest]):
        mean_point(figure, look, "", difference, None, look.label)
    figure.add_vline(x=0, line=NEUTRAL)
    figure.update_layout(showlegend=False, margin={"l": 8, "r": 8, "t": 4, "b": 24})
    figure.update_yaxes(type="category")
    frame_open(figure, [difference for _, difference in farthest])
    return figure
