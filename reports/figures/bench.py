"""`ablate bench` as a figure: how much of the machine's ceiling each library uses in each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from reports.figures.style import CONFIG, blank, looks


def bench_figure(document: Mapping[str, Any], sides: Sequence[str], phases: Mapping[str, str]) -> go.Figure:
    """document: that of `ablate bench --json`. sides: the libraries. phases: titles by name. Bars hold the median
    tokens per second; whiskers reach to the quartiles of the rounds."""
    figure = blank("share of the machine's ceiling (%)", "", 140 + 90 * len(phases))
    for side, look in looks(sides).items():
        found = [document["phases"][phase][side] for phase in phases]
        rates = [each["tokens_per_second"] for each in found]
        shares = [100 * each["share_of_ceiling"] for each in found]
        above, below = (
            [share * abs(rate[end] / rate["median"] - 1) for share, rate in zip(shares, rates, strict=True)]
            for end in ("q75", "q25")
        )
        figure.add_bar(
            x=shares,
            y=list(phases.values()),
            orientation="h",
            name=look.label,
            marker_color=look.colour,
            error_x={"type": "data", "array": above, "arrayminus": below},
            text=[f"{rate['median']:,.0f} tokens/s" for rate in rates],
            textposition="inside",
        )
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(barmode="group")
    return figure


def bench_page(document: Mapping[str, Any], sides: Sequence[str], phases: Mapping[str, str], words: str) -> str:
    """A whole HTML page of it that works offline. words: what the figure is of."""
    figure = bench_figure(document, sides, phases)
    figure.update_layout(title={"text": words, "font": {"size": 13}}, margin={"t": 110, "l": 110}, legend={"y": -0.25})
    page: str = figure.to_html(include_plotlyjs=True, config=CONFIG)
    return page
