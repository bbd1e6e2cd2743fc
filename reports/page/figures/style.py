"""Common style of all figures, and escaping of text in them."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reports.page.figures.drawing import PLAIN, Drawing
from reports.page.wording.arm_names import brief

PALETTE = ("#2b83c6", "#e37502", "#862fff", "#d0066a", "#7f72f8", "#c28261", "#d60026", "#b683a9")
"""Colours that colour-blind readers can tell apart too, with a contrast of 3 to 1 to both backgrounds. Those that most
studies need come first."""
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")
GRID = "rgba(128,128,128,0.22)"
BASE, BASE_MARK = "base", {"color": "#444", "size": 11, "symbol": "x"}
"""Name and marker of a search's base, the control."""
LONGEST_LABEL = 28
CONFIG: dict[str, bool | str | list[str]] = {
    "displaylogo": False,
    "responsive": True,
    "showSendToCloud": False,
    "showLink": False,
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": [
        "sendDataToCloud",
        "sendChartToCloud",
        "toImage",
        "select2d",
        "lasso2d",
        "autoScale2d",
    ],
}
"""Plotly's configuration without logo, upload or anything else that could leave the page. The page has its own buttons
for saving pictures."""


@dataclass(frozen=True)
class ArmStyle:
    """Colour, dash and symbol of one arm in every figure; arms never differ by colour alone."""

    colour: str
    dash: str
    symbol: str
    label: str
    """Its name, escaped, shortened and unique."""

    def fill(self, opacity: float) -> str:
        """The colour with this opacity."""
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{opacity})"


def looks(arms: Sequence[str]) -> dict[str, ArmStyle]:
    """One style per arm, by its index in the study, so that all figures agree."""
    named = {arm: label(name) for arm, name in brief(arms).items()}
    shortened = Counter(named.values())
    return {
        arm: ArmStyle(
            PALETTE[i % len(PALETTE)],
            DASHES[(i // len(PALETTE)) % len(DASHES)],
            SYMBOLS[(i + i // len(PALETTE)) % len(SYMBOLS)],
            named[arm] if shortened[named[arm]] == 1 else f"{named[arm]} ({i + 1})",
        )
        for i, arm in enumerate(arms)
    }


def label(text: str, longest: int = LONGEST_LABEL) -> str:
    """Escape text for a figure, since Plotly reads a subset of HTML in every label.

    The middle of a long text is left out: grid cells that begin alike differ at the end.
    """
    half = longest // 2
    short = text if len(text) <= longest else f"{text[:half]}…{text[-half + 1 :]}"
    return html.escape(" ".join(short.split()), quote=False)


def blank(x_title: str, y_title: str, height: int = 380) -> Drawing:
    """An empty figure with titled axes on a transparent background; the page sets the text colour."""
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "automargin": True}
    title = {"standoff": 8, "font": {"size": 13}}
    return Drawing(
        {
            "template": PLAIN,
            "height": height,
            "margin": {"l": 56, "r": 12, "t": 36, "b": 48},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#333"},
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "orientation": "v"},
            "xaxis": {**axis, "title": {**title, "text": x_title}},
            "yaxis": {**axis, "title": {**title, "text": y_title}},
        }
    )
