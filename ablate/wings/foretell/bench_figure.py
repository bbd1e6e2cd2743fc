"""`ablate bench` as a figure: the share of the machine's ceiling that each library reaches in each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from reports.page.figures.drawing import Drawing, blank, looks

Document: TypeAlias = Mapping[str, Any]
"""Document that `ablate bench --json` prints."""


def bench_figure(document: Document, sides: Sequence[str], phases: Mapping[str, str]) -> Drawing:
    """document: output of `ablate bench --json`. sides: the libraries. phases: titles by name. Whiskers extend to the
    quartiles of the rounds; the text gives the median tokens per second."""
    figure = blank("share of the machine's ceiling (%)", "", 140 + 90 * len(phases))
    for side, look in looks(sides).items():
        found = [document["phases"][phase][side] for phase in phases]
        rates = [each["tokens_per_second"] for each in found]
        shares = [100 * each["share_of_ceiling"] for each in found]
        above, below = (
            [share * abs(rate[end] / rate["median"] - 1) for share, rate in zip(shares, rates, strict=True)]
            for end in ("q75", "q25")
        )
        bars = [list(phases.values()), [look.label] * len(phases)]
        figure.add_bar(
            x=shares,
            y=bars,
            orientation="h",
            marker={"color": look.colour},
            error_x={"type": "data", "array": above, "arrayminus": below},
        )
        figure.add_scatter(
            x=[share + whisker for share, whisker in zip(shares, above, strict=True)],
            y=bars,
            mode="text",
            text=[f"  {rate['median']:,.0f} tokens/s" for rate in rates],
            textposition="middle right",
            cliponaxis=False,
        )
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(showlegend=False)
    return figure


def bench_page(document: Document, sides: Sequence[str], phases: Mapping[str, str], words: str) -> str:
    """A complete HTML page of the figure that works offline. words: its title."""
    import plotly.graph_objects as go  # noqa: PLC0415 (slow to load, and figures of reports do without)

    figure = bench_figure(document, sides, phases)
    figure.update_layout(title={"text": words, "font": {"size": 13}}, margin={"t": 60, "l": 200, "r": 120})
    config = {"displaylogo": False, "responsive": True}
    page: str = go.Figure(figure.to_plotly_json()).to_html(include_plotlyjs=True, config=config)
    return page
