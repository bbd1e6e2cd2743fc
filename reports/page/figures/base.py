"""Components of figures: a figure with its text and data, and common traces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reports.judge.reading.collected import Curve, CurvePoint
from reports.judge.statistics.estimates import Estimate
from reports.page.figures.drawing import ArmStyle, Attributes, Drawing, blank
from reports.page.wording import words
from reports.page.wording.table import Table

MOST_SEEDS = 1000
"""Most seeds of an arm drawn and listed one by one; more would hide each other."""
TABLE_ROWS = 12
NEUTRAL = {"color": "#888", "width": 1.5, "dash": "dot"}
FAR = 1e3
"""Length of an unbounded error bar, which is drawn up to the frame."""
GOES_ON = "Bars that reach the frame extend beyond it."
Mark = tuple[str, float]
"""An arm, and a value that is marked for it."""


@dataclass(frozen=True)
class SwitchOption:
    """One choice of a switch: attributes of all traces, one value per trace (None leaves it unchanged), and of the
    layout."""

    label: str
    traces: dict[str, list[Any]]
    layout: Attributes


@dataclass(frozen=True)
class Switch:
    """A choice for the reader, drawn as a select element. `chosen` is the initial option."""

    key: str
    label: str
    options: tuple[SwitchOption, ...]
    chosen: int = 0


@dataclass(frozen=True)
class Figure:
    """A drawing, its text and its data. `title`, `note` and `alt` are plain text.

    Traces of one arm have its label as their legend group, by which the page highlights the arms that the reader
    chooses. `combined[i][j]` are attributes of all traces that depend on the first switch at i and the second at j.
    """

    key: str
    title: str
    note: str
    alt: str
    drawing: Drawing
    table: Table
    switches: tuple[Switch, ...] = ()
    combined: tuple[tuple[Attributes, ...], ...] = ()
    wide: bool = False


def forest(title: str, rows: Sequence[tuple[ArmStyle, Estimate | None]]) -> tuple[Drawing, str, str]:
    """Forest plot of differences: means with intervals, and the first `MOST_SEEDS` seeds as open points. Also returns a
    phrase for the seeds drawn, and a note if the axis cuts an interval off."""
    figure = blank(title, "", 130 + 46 * len(rows))
    for look, value in reversed(rows):
        if value is not None:
            shown = [short(each) for each in value.values[:MOST_SEEDS]]
            figure.add_scatter(
                x=shown,
                y=[look.label] * len(shown),
                mode="markers",
                marker={"color": look.colour, "symbol": f"{look.symbol}-open", "size": 7},
                opacity=0.75,
                showlegend=False,
                legendgroup=look.label,
                hovertemplate="seed: %{x:.5g}, %{y}<extra></extra>",
            )
            mean_point(figure, look, "", value, None, look.label)
    figure.add_vline(x=0, line=NEUTRAL)
    figure.update_layout(showlegend=False, margin={"t": 16})
    known = [value for _, value in rows if value is not None]
    ends, cut = [end for value in known for end in (value.low, value.high) if end is not None], ""
    if not all(map(math.isfinite, ends)):  # the axis has room for zero and the finite values, with a margin
        places = [0.0, *filter(math.isfinite, ends), *(each for value in known for each in value.values)]
        margin = 0.15 * (max(places) - min(places))
        figure.update_xaxes(range=[short(min(places) - margin), short(max(places) + margin)])
        cut = GOES_ON
    name_rows(figure, [look.label for look, _ in rows])
    every = all(len(value.values) <= MOST_SEEDS for value in known)
    return figure, "seeds" if every else f"the first {MOST_SEEDS:,} seeds", cut


def mean_point(figure: Drawing, look: ArmStyle, name: str, x: Estimate, y: Estimate | None, row: str = "") -> None:
    """The mean with its interval in both directions; `row` is the category if there is no y."""
    figure.add_scatter(
        x=[short(x.mean)],
        y=[row if y is None else short(y.mean)],
        error_x=_bars(look, x),
        error_y=None if y is None else _bars(look, y),
        name=name,
        legendgroup=look.label,
        mode="markers",
        marker={"color": look.colour, "symbol": look.symbol, "size": 11},
        hovertemplate="mean: %{x:.5g}, %{y}<extra></extra>",
    )


def _bars(look: ArmStyle, value: Estimate) -> dict[str, object]:
    return {
        "type": "data",
        "array": [reach(value, 1)],
        "arrayminus": [reach(value, 0)],
        "color": look.colour,
        "thickness": 1.8,
        "width": 5,
    }


def reach(value: Estimate, side: int) -> float:
    """Distance from the mean to the lower end, or with side 1 to the upper end; 0 without an interval."""
    if value.low is None or value.high is None:
        return 0.0
    return min(FAR, short(value.high - value.mean if side else value.mean - value.low))


def band(figure: Drawing, look: ArmStyle, curve: Curve, scale: float, opacity: float) -> None:
    """The range over seeds as a filled band; nothing for a single seed."""
    if all(point.seeds < 2 for point in curve.points):
        return
    up, down = curve.points, curve.points[::-1]
    figure.add_scatter(
        x=[short(point.x * scale) for point in (*up, *down)],
        y=[short(point.high) for point in up] + [short(point.low) for point in down],
        fill="toself",
        fillcolor=look.fill(opacity),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        legendgroup=look.label,
    )


def line(figure: Drawing, look: ArmStyle, curve: Curve, width: float = 2.2, named: bool = True) -> None:
    """The mean over seeds, with markers."""
    figure.add_scatter(
        x=[short(point.x) for point in curve.points],
        y=[short(point.mean) for point in curve.points],
        name=look.label,
        legendgroup=look.label,
        showlegend=named,
        mode="lines+markers",
        marker={"symbol": look.symbol, "size": 7},
        line={"color": look.colour, "dash": look.dash, "width": width},
        hovertemplate="%{y:.5g} at %{x}",
    )


def thin_line(figure: Drawing, look: ArmStyle, curve: Curve) -> None:
    """The curve of one seed, thin and faint."""
    figure.add_scatter(
        x=[short(point.x) for point in curve.points],
        y=[short(point.mean) for point in curve.points],
        legendgroup=look.label,
        showlegend=False,
        mode="lines",
        line={"color": look.colour, "width": 0.8},
        opacity=0.4,
        hoverinfo="skip",
    )


def thinned(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """At most `TABLE_ROWS` points, always including the last."""
    step = max(1, -(-len(points) // TABLE_ROWS))
    return list(points[::-1][::step])[::-1]


def mean_and_range(point: CurvePoint) -> tuple[str, str, str]:
    return f"{point.mean:.4f}", f"{point.low:.4f}", f"{point.high:.4f}"


def ends(curves: Sequence[Curve], kind: str) -> str:
    """Alternative text of a figure over training: the final value of each arm."""
    last = [(curve.arm, curve.points[-1].mean) for curve in curves if curve.kind == kind]
    return "At the end: " + "; ".join(f"{arm} {words.signed(value, 4)}" for arm, value in last)


def short(value: float) -> float:
    """Six significant digits: enough for drawing, in a third of the bytes."""
    return float(f"{value:.6g}")


EARLY = 0.3
"""Share of training that loss axes leave out at first: the initial fall dwarfs the rest."""
APART = 2
"""A curve is also left out if it ends above the axis of the others by more than this many times that axis's height."""


def late_range(curves: Sequence[Curve], others: Iterable[Curve] = (), marks: Iterable[Mark] = ()) -> list[float]:
    """Range of an axis of losses, with a margin: everything drawn after the early part of training, for arms whose
    curves end close together. `others` and `marks` are what is drawn beside the curves."""
    above = _above(curves)
    every = [curve for curve in (*curves, *others) if curve.arm not in above]
    return range_of(_late(every), [value for arm, value in marks if arm not in above])


def _late(curves: Iterable[Curve]) -> list[CurvePoint]:
    """Points after the early part of training."""
    return [p for curve in curves for p in curve.points if p.x >= EARLY * curve.points[-1].x]


def range_of(points: Sequence[CurvePoint], values: Sequence[float] = ()) -> list[float]:
    """Range from the lowest to the highest value, with a margin."""
    low, high = min([*(p.low for p in points), *values]), max([*(p.high for p in points), *values])
    margin = 0.05 * (high - low) or 0.05
    return [low - margin, high + margin]


def leaves_out(curves: Sequence[Curve], what: str) -> str:
    """Note on `what` the range of `late_range` leaves out, and the arms above it."""
    above = [f"{arm} ({loss:.3g})" for arm, loss in _above(curves).items()]
    arms = f" and arms far above the others: {', '.join(above)}" if above else ""
    return f"The axis leaves out {what}{arms}. Zoom out to see more."


def _above(curves: Sequence[Curve]) -> dict[str, float]:
    """Arms whose curves end far above the rest, such as stalled ones, with their last values."""
    kept: list[Curve] = []
    for curve in sorted(curves, key=lambda curve: curve.points[-1].mean):
        if len(kept) >= 2:
            low, high = range_of(_late(kept))
            if curve.points[-1].mean - high > APART * (high - low):
                break
        kept.append(curve)
    return {curve.arm: curve.points[-1].mean for curve in curves if curve not in kept}


def bucket_ticks(ends: Iterable[int], most: int) -> list[int]:
    """At most `most` of the buckets' ends, evenly thinned, always including the last."""
    every = sorted(set(ends))
    return every[:: -math.ceil(len(every) / most)][::-1]


def no_windows(arm: str, reasons: Iterable[tuple[int, str]]) -> Iterator[str]:
    """` learned has no windows of 2× and 4×: reads at most 256 tokens.`, for multiples of the training context."""
    by: dict[str, list[str]] = {}
    for multiple, reason in reasons:
        by.setdefault(reason, []).append(f"{multiple}×")
    yield from (f" {arm} has no windows of {' and '.join(lengths)}: {reason}." for reason, lengths in by.items())


def bucket_name(first: int, last: int) -> str:
    """`129–256`."""
    return words.whole(last) if first == last else f"{words.whole(first)}–{words.whole(last)}"


ONE_LINE = 16
BREAKS = "…+_=- "
"""Characters after which a name may be broken into two lines."""
SPREAD = 0.6
"""Share of a row's height that its arms occupy, if they are placed below each other."""


def name_rows(figure: Drawing, labels: Sequence[str]) -> None:
    """Label the rows, from top to bottom."""
    figure.update_yaxes(type="category", tickvals=labels, ticktext=[two_lines(name) for name in labels])


def two_lines(name: str) -> str:
    """A long name, broken between words near its middle to leave room on a phone."""
    places = [place for place, letter in enumerate(name, 1) if letter in BREAKS and place < len(name)]
    if len(name) <= ONE_LINE or not places:
        return name
    middle = min(places, key=lambda place: abs(place - len(name) / 2))
    return f"{name[:middle]}<br>{name[middle:]}"


def beside_row(number: int, arms: int) -> float:
    """Offset below the middle of a row of height 1 for arm `number` of `arms`, in the order of the study."""
    return SPREAD * ((number + 0.5) / arms - 0.5)


def stacked(titles: Sequence[str], labels: Sequence[str], row: int = 30) -> Drawing:
    """Panels below each other with the same categories, each with its own x axis. titles: of at most two lines. row:
    height of a category in pixels."""
    frame = blank("", "").layout
    height = 60 + len(titles) * (94 + row * len(labels))
    figure = Drawing.grid(len(titles), 1, vertical=82 / height if len(titles) > 1 else 0)
    # right-aligned, so that long names may use the room of the labels too
    figure.name_panels(titles, x=1, xanchor="right", align="right", font={"size": 13})
    figure.update_xaxes(**frame.xaxis)
    figure.update_yaxes(**frame.yaxis)
    figure.update_layout({name: value for name, value in frame.items() if name not in ("xaxis", "yaxis")})
    figure.update_layout(height=height, showlegend=False)
    name_rows(figure, labels)
    return figure


def optional(value: float | None) -> str:
    return words.NONE if value is None else words.score(value)
