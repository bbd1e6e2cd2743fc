"""Scored trials of a search by their settings, each setting by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ablate.store.documents import TrialRecord
from reports.figures.base import short
from reports.figures.drawing import Attributes, Drawing
from reports.figures.setting_axes import SettingAxis
from reports.figures.style import PALETTE, blank

COLUMNS = 3
PANEL, BETWEEN, ABOVE = 170, 76, 40
"""Pixels: the height of a panel, of the room between two, and of that for the legend."""
PANEL_PIXELS = 210
"""Width that a panel needs; a narrower screen scrolls."""
TITLE = {"font": {"size": 12}, "standoff": 6}


def slices(
    trials: Sequence[TrialRecord],
    scores: Sequence[float],
    axes: Sequence[SettingAxis],
    title: str,
    best_numbers: frozenset[int],
) -> Drawing:
    """A panel for each setting, all with the score upwards."""
    rows = math.ceil(len(axes) / COLUMNS)
    height = ABOVE + rows * PANEL + (rows - 1) * BETWEEN
    figure = Drawing.grid(rows, min(COLUMNS, len(axes)), horizontal=0.05, vertical=BETWEEN / height)
    figure.share_y()
    look = blank("", "", height + 2 * BETWEEN)
    figure.update_layout(look.layout)
    figure.update_layout(margin={"r": 36}, meta={"leastWidth": PANEL_PIXELS * min(COLUMNS, len(axes))})
    figure.update_xaxes(**_plain(look.layout.xaxis))
    figure.update_yaxes(**_plain(look.layout.yaxis))
    found = "best" if len(best_numbers) == 1 else "front"
    for number, axis in enumerate(axes):
        place = {"row": number // COLUMNS + 1, "col": number % COLUMNS + 1}
        for best in (False, True):
            own = [i for i, trial in enumerate(trials) if (trial.number in best_numbers) == best]
            chosen = [i for i in own if not math.isnan(axis.places[i])]
            figure.add_scatter(
                **_points(trials, scores, axis, chosen),
                **_marks(best, found),
                showlegend=bool(best_numbers) and not number,
                **place,
            )
        room = 0.12 * (axis.high - axis.low or 1.0)
        figure.update_xaxes(
            title={**TITLE, "text": axis.title},
            tickvals=[short(at) for at, _ in axis.ticks],
            ticktext=[text for _, text in axis.ticks],
            range=[axis.low - room, axis.high + room],
            **place,
        )
        if place["col"] == 1:
            figure.update_yaxes(title={**TITLE, "text": title}, **place)
    return figure


def _plain(axis: Attributes) -> Attributes:
    return {name: value for name, value in axis.items() if name != "title"}


def _points(
    trials: Sequence[TrialRecord], scores: Sequence[float], axis: SettingAxis, chosen: Sequence[int]
) -> Attributes:
    return {
        "x": [short(axis.places[i]) for i in chosen],
        "y": [short(scores[i]) for i in chosen],
        "customdata": [trials[i].number for i in chosen],
        "hovertemplate": "trial %{customdata}: %{y:.5g}<extra></extra>",
    }


def _marks(best: bool, found: str) -> Attributes:
    name, colour, symbol, size = (
        (found, PALETTE[1], "diamond", 10) if best else ("other trials", PALETTE[0], "circle", 6)
    )
    marker = {"color": colour, "symbol": symbol, "size": size, "opacity": 1.0 if best else 0.6}
    return {"mode": "markers", "name": name, "legendgroup": name, "marker": marker}
