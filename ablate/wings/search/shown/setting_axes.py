"""Settings of a search as axes: each trial's position, readable ticks, and trials by each setting or in parallel
coordinates, with an axis for the score and each setting, and a line for each trial.

Parallel coordinates are drawn as lines of an ordinary figure: Plotly's own need WebGL and the full plotly.js, and do
not report clicks.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ablate.wings.search.documents import Choices, TrialRecord
from ablate.wings.search.shown.search_summary import NO_TRIAL
from ablate.wings.search.shown.search_words import setting_text, titles_of
from reports.page.figures.base import short
from reports.page.figures.drawing import BASE, BASE_MARK, GRID, PALETTE, Attributes, Drawing, blank, label

MOST_TICKS = 5
LONGEST_TICK = 12
"""Most characters of a tick's text."""

Tick = tuple[float, str]


@dataclass(frozen=True)
class SettingAxis:
    """A setting as an axis. Choices are placed at whole numbers, values of a logarithmic range at their logarithms."""

    path: str
    title: str
    places: tuple[float, ...]
    """Positions of the trials, in order; NaN if a trial lacks the setting."""
    low: float
    high: float
    ticks: tuple[Tick, ...]

    def share(self, place: float) -> float:
        """Position as a share of the axis from its low to its high end."""
        return (place - self.low) / (self.high - self.low or 1.0)


def score_axis(scores: Sequence[float], title: str) -> SettingAxis:
    """The scores of trials as an axis."""
    low, high = min(scores), max(scores)
    return SettingAxis("", title, tuple(scores), low, high, tuple(_ticks(low, high, whole=False)))


def setting_axes(trials: Sequence[TrialRecord], paths: Sequence[str]) -> list[SettingAxis]:
    """An axis for each of these settings that some trial has."""
    known = [path for path in paths if any(path in trial.distributions for trial in trials)]
    titles = titles_of(known)
    return [_axis(path, titles[path], trials) for path in known]


def _axis(path: str, title: str, trials: Sequence[TrialRecord]) -> SettingAxis:
    having = [trial for trial in trials if path in trial.params]
    ends = next(trial.distributions[path].attributes for trial in having if path in trial.distributions)
    said = reversed([(trial.params[path], trial.settings.get(path, trial.params[path])) for trial in having])
    texts = {value: setting_text(setting) for value, setting in said}
    if isinstance(ends, Choices):
        choices = [choice for choice in ends.choices if choice in texts]
        at = {choice: float(place) for place, choice in enumerate(choices)}
        ticks = tuple((at[choice], label(texts[choice], LONGEST_TICK)) for choice in choices)
        places = tuple(at[trial.params[path]] if path in trial.params else math.nan for trial in trials)
        return SettingAxis(path, title, places, 0.0, max(1.0, len(choices) - 1.0), ticks)
    of_width = any(str(text).endswith("x") for text in texts.values())
    values = [trial.params.get(path) for trial in trials]
    numbers = [float(value) if isinstance(value, int | float) else math.nan for value in values]
    places = tuple(map(math.log10, numbers)) if ends.log else tuple(numbers)
    low, high = (math.log10(end) if ends.log else float(end) for end in (ends.low, ends.high))
    drawn = _log_ticks(low, high) if ends.log else _ticks(low, high, whole=isinstance(ends.low, int))
    return SettingAxis(path, f"{title} (× d_model)" if of_width else title, places, low, high, tuple(drawn))


def _log_ticks(low: float, high: float) -> Iterator[Tick]:
    """Powers of ten, with factors between them where there is room."""
    for factors in ((1, 2, 5), (1, 3), (1,)):
        values = [factor * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for factor in factors]
        inside = [value for value in values if low - 1e-9 <= math.log10(value) <= high + 1e-9]
        if len(inside) <= MOST_TICKS:
            break
    yield from ((math.log10(value), f"{value:g}") for value in inside)


def _ticks(low: float, high: float, whole: bool) -> Iterator[Tick]:
    """Round numbers: multiples of 1, 2 or 5 times a power of ten."""
    rough = max((high - low) / MOST_TICKS, 1e-12)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough * (1 - 1e-9))
    step = max(1.0, step) if whole else step
    for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        yield place * step, f"{round(place * step, 12):g}"


COLUMNS = 3
PANEL, BETWEEN, ABOVE = 170, 76, 40
"""Pixels: height of a panel, of the gap between two, and of the legend."""
PANEL_PIXELS = 210
"""Width in pixels that a panel needs; a narrower screen scrolls."""
TITLE = {"font": {"size": 12}, "standoff": 6}


def slices(
    trials: Sequence[TrialRecord],
    scores: Sequence[float],
    axes: Sequence[SettingAxis],
    title: str,
    best_numbers: frozenset[int],
    base: TrialRecord | None,
) -> Drawing:
    """A panel for each setting, all with the score upwards. base: one of the trials, or an additional record."""
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
    numbered = [i for i, trial in enumerate(trials) if trial.number != NO_TRIAL]
    for number, axis in enumerate(axes):
        place = {"row": number // COLUMNS + 1, "col": number % COLUMNS + 1}
        for best in (False, True):
            own = [i for i in numbered if (trials[i].number in best_numbers) == best]
            chosen = [i for i in own if not math.isnan(axis.places[i])]
            figure.add_scatter(
                **_points(trials, scores, axis, chosen),
                **_marks(best, found),
                showlegend=bool(best_numbers) and not number,
                **place,
            )
        at = trials.index(base) if base else None
        if at is not None and not math.isnan(axis.places[at]):
            figure.add_scatter(
                x=[short(axis.places[at])],
                y=[short(scores[at])],
                mode="markers",
                name=BASE,
                legendgroup=BASE,
                showlegend=not number,
                marker=BASE_MARK,
                hovertemplate=f"{BASE}: %{{y:.5g}}<extra></extra>",
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
        annotations=[note for place, axis in enumerate(axes) for note in _tick_labels(place, axis)],
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


def _tick_labels(place: int, axis: SettingAxis) -> Iterator[Attributes]:
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
