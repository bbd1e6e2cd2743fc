"""The plotly.js that a page carries: that of its cartesian traces where it draws no others, a third of the whole.

`templates/plotly/plotly-cartesian.min.js` is the file of that name of the npm package `plotly.js-cartesian-dist-min`,
unchanged, of the version that the plotly of constraints.txt has within it. To renew it:

    npm pack plotly.js-cartesian-dist-min@VERSION
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

CARTESIAN = frozenset(
    {
        "bar",
        "box",
        "contour",
        "heatmap",
        "histogram",
        "histogram2d",
        "histogram2dcontour",
        "image",
        "pie",
        "scatter",
        "scatterternary",
        "violin",
    }
)
"""Kinds of traces that the smaller file draws."""


def plotly_js(figures: Any) -> str:
    """plotly.js as a browser reads it, so that its hash holds, for figures as the page's script takes them."""
    if not figures:
        return ""
    kinds = {trace.get("type", "scatter") for figure in figures for trace in figure["data"]}
    return _cartesian() if kinds <= CARTESIAN else _whole()


@cache
def _cartesian() -> str:
    file = resources.files("reports.pages") / "templates" / "plotly" / "plotly-cartesian.min.js"
    return file.read_text(encoding="utf-8")


@cache
def _whole() -> str:
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 (slow to load, and few pages need it)

    return str(get_plotlyjs()).replace("\r\n", "\n")
