"""Scored trials of a search in parallel coordinates: an axis for the score and each setting, a line for each trial.

Drawn as lines of an ordinary figure: Plotly's own parallel coordinates need WebGL and the full plotly.js, and do not
report clicks.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal

from ablate.wings.search.documents import TrialRecord
from ablate.wings.search.shown.search_summary import NO_TRIAL
from ablate.wings.search.shown.setting_axes import SettingAxis, score_axis
from reports.page.figures.base import short
from reports.page.figures.drawing import BASE, BASE_MARK, GRID, PALETTE, Attributes, Drawing, blank

AXIS_PIXELS = 104
"""Width in pixels that an axis needs; a narrower screen scrolls."""
TITLE_LETTERS = 15
GROUPS = (("best tenth", 0.1, PALETTE[1], 2.4), ("best half", 0.5, PALETTE[0], 1.2), ("others", 1.0, "#9aa4ae", 0.8))
"""Groups of trials by rank: name, largest share of better trials, colour, width of the line."""
ALIKE = (("trials", 1.0, PALETTE[0], 1.2),)


def parallel(
    trials: Sequence[TrialRecord],
    scores: Sequence[float],
    settings: Sequence[SettingAxis],
    title: str,
    better: Literal["low", "high", "neither"],
    base: TrialRecord | None,
) -> Drawing:
    """One line per trial, coloured by the share of better trials, unless better is `neither`. base: one of the trials,
    or an additional record."""
    axes = [score_axis(scores, title), *settings]
    figure = blank("", "", 400)
    numbered = [i for i, trial in enumerate(trials) if trial.number != NO_TRIAL]
    order = sorted(numbered, key=lambda i: scores[i], reverse=better == "high")
    groups = ALIKE if better == "neither" else GROUPS
    members: list[list[int]] = [[] for _ in groups]
    for rank, trial in enumerate(order):
        members[next(i for i, (_, most, *_) in enumerate(groups) if rank / len(order) < most)].append(trial)
    for (name, _, colour, width), own in [*zip(groups, members, strict=True)][::-1]:
        figure.add_scatter(**_lines(trials, scores, axes, own), name=name, line={"color": colour, "width": width})
    if base is not None:
        dashed = {"color": BASE_MARK["color"], "width": 1.6, "dash": "dash"}
        figure.add_scatter(**_lines(trials, scores, axes, [trials.index(base)]), name=BASE, line=dashed)
    upright = {"color": GRID, "width": 2}
    figure.update_layout(
        margin={"l": 24, "r": 64, "t": 76, "b": 24},
        legend={"y": -0.02, "yanchor": "top", "traceorder": "reversed"},
        meta={"leastWidth": AXIS_PIXELS * len(axes)},
        annotations=[note for place, axis in enumerate(axes) for note in _ticks(place, axis)],
        shapes=[
            {"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "line": upright, "layer": "below"}
            for place in range(len(axes))
        ],
    )
    figure.update_xaxes(
        side="top",
        tickvals=list(range(len(axes))),
        ticktext=["<br>".join(textwrap.wrap(axis.title, TITLE_LETTERS)) for axis in axes],
        tickangle=0,
        range=[-0.2, len(axes) - 0.5],
        showgrid=False,
        fixedrange=True,
    )
    figure.update_yaxes(visible=False, range=[-0.06, 1.06], fixedrange=True)
    return figure


def _lines(
    trials: Sequence[TrialRecord], scores: Sequence[float], axes: Sequence[SettingAxis], members: Sequence[int]
) -> Attributes:
    """The lines of these trials as one trace, with a gap after each."""
    x: list[float | None] = []
    y: list[float | None] = []
    numbers: list[int | None] = []
    said: list[str] = []
    for i in members:
        shown = [place for place, axis in enumerate(axes) if not math.isnan(axis.places[i])]
        x += [*shown, None]
        y += [*(short(axes[place].share(axes[place].places[i])) for place in shown), None]
        number = trials[i].number
        numbers += [*[None if number == NO_TRIAL else number] * len(shown), None]
        said += [*[f"{BASE if number == NO_TRIAL else f'trial {number}'}: {scores[i]:.5g}"] * len(shown), ""]
    return {"x": x, "y": y, "customdata": numbers, "text": said, "mode": "lines", "hoverinfo": "text"}


def _ticks(place: int, axis: SettingAxis) -> Iterator[Attributes]:
    for at, text in axis.ticks:
        yield {
            "x": place,
            "y": short(axis.share(at)),
            "text": text,
            "xanchor": "left",
            "xshift": 4,
            "showarrow": False,
            "font": {"size": 11},
        }
