"""Drawings are what plotly would make of the same calls."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pytest
from plotly.subplots import make_subplots

from reports.page.figures.base import NEUTRAL
from reports.page.figures.drawing import PLAIN, Drawing, Part, blank


def as_plotly(drawing: Drawing) -> Any:
    return go.Figure(drawing.to_plotly_json()).to_plotly_json()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 1), (2, 3), (7, 4)])
def test_a_grid_is_that_of_plotly(rows: int, columns: int) -> None:
    drawing = Drawing.grid(rows, columns, horizontal=0.05, vertical=0.3 / rows / 2)
    titles = [f"panel {place}" for place in range(rows * columns)]
    drawing.name_panels(titles, font={"size": 16})
    drawing.share_y()
    drawing.add_scatter(x=[1], y=[2], row=rows, col=columns)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=titles,
        shared_yaxes=True,
        horizontal_spacing=0.05,
        vertical_spacing=0.3 / rows / 2,
    )
    figure.update_layout(template="none").add_scatter(x=[1], y=[2], row=rows, col=columns)
    assert drawing.to_plotly_json() == figure.to_plotly_json()


def test_lines_are_those_of_plotly_in_one_panel_and_in_those_that_have_traces() -> None:
    drawing, figure = Drawing.grid(1, 3), make_subplots(1, 3, horizontal_spacing=0)
    alone, single = Drawing({}), go.Figure()
    figure.layout.template, single.layout.template = "none", None
    for place in (1, 2):
        drawing.add_scatter(x=[1], y=[2], row=1, col=place)
        figure.add_scatter(x=[1], y=[2], row=1, col=place)
    for mine, theirs in ((drawing, figure), (alone, single)):
        mine.add_vline(x=3, line=NEUTRAL)
        theirs.add_vline(x=3, line=NEUTRAL)
        mine.add_hline(y=4, line=NEUTRAL, name="base")
        theirs.add_hline(y=4, line=NEUTRAL, annotation_text="base")
    drawing.add_vline(x=5, line=NEUTRAL, row=1, col=2)
    figure.add_vline(x=5, line=NEUTRAL, row=1, col=2)
    assert drawing.to_plotly_json() == figure.to_plotly_json()
    assert alone.to_plotly_json()["layout"] == single.to_plotly_json()["layout"]


def test_settings_are_merged_and_none_takes_one_away() -> None:
    part = Part.of({"line": {"color": "red", "width": 2}, "name": "a", "marker.symbol": "x", "points": ({"x": 1},)})
    part.set({"line": {"width": 3}, "name": None, "line.dash": "dot"})
    assert part == {
        "line": {"color": "red", "width": 3, "dash": "dot"},
        "marker": {"symbol": "x"},
        "points": [{"x": 1}],
    }
    assert (part.line.width, part.name, part.points[0].x) == (3, None, 1)


def test_the_plain_template_is_plotly_s() -> None:
    assert go.Figure(layout={"template": "none"}).to_plotly_json()["layout"]["template"] == PLAIN
    assert as_plotly(blank("x", "y")) == blank("x", "y").to_plotly_json()
