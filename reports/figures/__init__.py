"""Figures of a summary, each with the table of what it shows. They draw and compute nothing new."""

from __future__ import annotations

from collections.abc import Callable

from reports.figures import (
    attention,
    caches,
    costs,
    difficulty,
    groups,
    items,
    ladder,
    positions,
    recall,
    scores,
    stability,
    tradeoff,
    training,
    tuning,
)
from reports.figures.base import Figure
from reports.figures.style import CONFIG, Look, looks
from reports.findings.shapes import StudySummary

__all__ = ["CONFIG", "Figure", "draw", "draw_stability"]

MAKERS: tuple[Callable[[StudySummary, dict[str, Look]], Figure | None], ...] = (
    scores.differences,
    tradeoff.trade_off,
    difficulty.over_training,
    training.losses,
    training.difference_curves,
    costs.cache_by_context,
    costs.decode_by_context,
    costs.prefill_by_context,
    caches.kinds_of_cache,
    scores.evals,
    groups.tasks_of_groups,
    positions.loss_by_position,
    recall.loss_by_distance,
    ladder.loss_by_compute,
    ladder.gap_by_compute,
    items.differences,
    attention.maps,
)


MOST_IN_LEGEND = 24
"""With more arms a legend hides the figure; the page's list of arms is one."""


def draw(summary: StudySummary) -> tuple[Figure, ...]:
    """Every figure for which the summary has something to show, in the order of the page."""
    style = looks([arm.name for arm in summary.arms])
    made = (make(summary, style) for make in MAKERS)
    drawn = (figure for figure in made if figure is not None)
    figures = (*difficulty.curves(summary, style), *drawn, *tuning.curves(summary, style))
    if len(style) > MOST_IN_LEGEND:
        for figure in figures:
            figure.drawing.update_layout(showlegend=False)
    return figures


def draw_stability(summary: StudySummary) -> tuple[Figure, ...]:
    """Figures of what probes saw; none for a study without."""
    style = looks([arm.name for arm in summary.arms])
    return tuple(stability.figures(summary, style))
