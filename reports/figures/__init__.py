"""Figures of a summary, each with the table of what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.figures.base import Figure
from reports.figures.style import CONFIG, looks

if TYPE_CHECKING:  # sections, of which a summary is made, draw figures
    from reports.findings.shapes import StudySummary

__all__ = ["CONFIG", "Figure", "draw", "galleries"]

MOST_IN_LEGEND = 24
"""With more arms a legend hides the figure; the page's list of arms is one."""


def draw(summary: StudySummary) -> tuple[Figure, ...]:
    """Every figure for which the summary has something to show, in the order of the page."""
    return tuple(figure for figures in galleries(summary).values() for figure in figures)


def galleries(summary: StudySummary) -> dict[str, tuple[Figure, ...]]:
    """The same by the headings under which they stand."""
    style = looks([arm.name for arm in summary.arms])
    found: dict[str, list[Figure]] = {}
    for section in summary.sections.values():
        if figures := list(section.figures(summary, style)):
            found.setdefault(section.gallery, []).extend(figures)
    if len(style) > MOST_IN_LEGEND:
        for figure in (figure for figures in found.values() for figure in figures):
            figure.drawing.update_layout(showlegend=False)
    return {heading: tuple(figures) for heading, figures in found.items()}
