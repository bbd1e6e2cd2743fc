"""Points in a plane of costs and qualities relative to a baseline, with names beside them and switchable axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reports.judge.statistics.estimates import surely_dominated
from reports.page.figures.base import NEUTRAL, Switch
from reports.page.figures.drawing import ArmStyle, Attributes, Drawing, blank, label
from reports.page.sections._against import Against, points

# Placement of point names with as little overlap as possible.

WIDTH, HEIGHT = 520.0, 380.0
"""Pixels inside the axes of a drawing on a small screen."""
WIDE = 1000.0
"""Width in pixels of a figure that spans the page."""
LETTER, LINE, GAP, MARK = 7.5, 17.0, 5.0, 9.0
"""Pixels: a letter's width, a line's height, the gap between a name and its point, and the space around other points,
so that a name is nearest to its own."""
PLACES = {"top right": (1, 1), "top left": (-1, 1), "bottom right": (1, -1), "bottom left": (-1, -1)}
"""Positions beside the error bars of a point, not on them."""


@dataclass(frozen=True)
class _Box:
    left: float
    bottom: float
    right: float
    top: float

    def covers(self, other: _Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.bottom < other.top and other.bottom < self.top

    def outside(self, width: float) -> float:
        """Overhang beyond the drawing, as a share of its width and height."""
        return max(0.0, -self.left, self.right - width) / width + max(0.0, -self.bottom, self.top - HEIGHT) / HEIGHT


def label_places(points: Sequence[tuple[float, float]], names: Sequence[str], width: float = WIDTH) -> list[str]:
    """Plotly's `textposition` of each name. points: as shares of the drawing's width (in pixels) and height."""
    return [place for place, _ in _placed(points, names, width)]


def readable(points: Sequence[tuple[float, float]], names: Sequence[str], width: float = WIDTH) -> list[str]:
    """The names; empty for those that would overlap an earlier one."""
    return [name for _, name in _placed(points, names, width, covering=False)]


def _placed(
    points: Sequence[tuple[float, float]], names: Sequence[str], width: float, covering: bool = True
) -> list[tuple[str, str]]:
    """(position, name) of each point. The name is empty if it would overlap another, unless names may be `covering`."""
    at = [(x * width, y * HEIGHT) for x, y in points]
    marks = [_Box(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in at]
    taken: list[_Box] = []
    found = []
    for number, (name, point) in enumerate(zip(names, at, strict=True)):
        others = [*taken, *marks[:number], *marks[number + 1 :]]
        every = {place: _box(point, name, sides) for place, sides in PLACES.items()}
        free = {place: box for place, box in every.items() if covering or not any(map(box.covers, taken))}
        boxes = free or every
        costs = {}
        for place, box in boxes.items():
            # names beyond the edge are cut off: worse than overlap, and the worse the farther they reach
            outside = box.outside(width)
            costs[place] = sum(map(box.covers, others)) + (3 + outside if outside else 0)
        best = min(costs, key=costs.__getitem__)
        stays = name if free else ""
        taken += [boxes[best]] * bool(stays)
        found.append((best, stays))
    return found


def _box(point: tuple[float, float], name: str, sides: tuple[int, int]) -> _Box:
    (x, y), (right, up) = point, sides
    length = LETTER * len(name)
    left = x + GAP if right > 0 else x - GAP - length
    bottom = y + GAP if up > 0 else y - GAP - LINE
    return _Box(left, bottom, left + length, bottom + LINE)


MOST_NAMED = 12
"""Most points that all have names. With more, only up to this many are named, where names do not overlap; the others
show theirs on hovering. Among rivals, points that are surely beaten are unnamed; among other points, those that may be
no better than their baseline; then those farthest from the best. Bars are fainter, and marks smaller and translucent.
"""
NO_BAR = "Without a bar: an interval much wider than the others, or without bounds."


@dataclass(frozen=True)
class Plane:
    """One point per look. Every axis has one value per point; the first axis of either kind is drawn initially.

    Points are `rivals` if they share one baseline, so that one may beat another; points at the `unjudged` indices
    neither beat nor are beaten. Hovering shows what each point is `about`, if known. `width`: pixels across on a usual
    screen, used to place names.
    """

    looks: Sequence[ArmStyle]
    across: Sequence[Against]
    up: Sequence[Against]
    rivals: bool = True
    unjudged: frozenset[int] = frozenset()
    about: Sequence[str] = ()
    width: float = WIDTH

    @property
    def switches(self) -> tuple[Switch, ...]:
        return (
            Switch("x", "cost", tuple(axis.option("x") for axis in self.across)),
            Switch("y", "quality", tuple(axis.option("y") for axis in self.up)),
        )

    @property
    def combined(self) -> tuple[tuple[Attributes, ...], ...]:
        return tuple(tuple(self._together(x, y) for y in self.up) for x in self.across)

    @property
    def explained(self) -> str:
        """Caption for markers and bars that only some figures have, for the first axes."""
        x, y = self.across[0], self.up[0]
        beaten = any(self._beaten(x, y))
        opened = "Open markers: clearly dominated by another arm on both axes." if beaten else ""
        cut = NO_BAR if x.lacks_bars or y.lacks_bars else ""
        return " ".join(filter(None, [opened, cut]))

    def drawing(self) -> Drawing:
        x, y = self.across[0].option("x"), self.up[0].option("y")
        figure = blank("", "", 520)
        every = {**x.traces, **y.traces, **self._together(self.across[0], self.up[0])}
        faint = self._is_crowded
        for place, look in enumerate(self.looks):
            own = {name: values[place] for name, values in every.items()}
            colour, thickness, width = (look.fill(0.3), 1, 0) if faint else (look.colour, 1.8, 5)
            bars = {"type": "data", "symmetric": False, "color": colour, "thickness": thickness, "width": width}
            figure.add_scatter(
                mode="markers+text",
                name=look.label,
                legendgroup=look.label,
                marker={"color": look.colour, "size": 9 if faint else 12, "line": {"width": 2, "color": look.colour}},
                opacity=0.75 if faint else 1.0,
                textfont={"size": 13},
                hoverinfo="text",
                error_x=bars,
                error_y=bars,
                **own,
            )
        figure.update_layout(x.layout | y.layout)
        figure.add_vline(x=1, line=NEUTRAL)
        figure.add_hline(y=0, line=NEUTRAL)
        figure.update_layout(showlegend=False, margin={"t": 16})
        return figure

    def rows(self, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Table rows, quality axes first."""
        for place, name in enumerate(names):
            yield (name, *(axis.text(axis.values[place]) for axis in (*self.up, *self.across)))

    def _together(self, x: Against, y: Against) -> Attributes:
        """Trace attributes that depend on both axes: symbols of points that are surely beaten, name positions and hover
        text."""
        beaten = self._beaten(x, y)
        dull = beaten if self.rivals else [value is None or not value.excludes(0) for value in y.values]
        named = self._named(y, dull)
        names = [look.label if each in named else "" for each, look in enumerate(self.looks)]
        places = [(x.share(a), y.share(b)) for a, b in zip(x.values, y.values, strict=True)]
        if self._is_crowded:
            names = readable(places, names, self.width)
        hover = []
        for place, look in enumerate(self.looks):
            said = (f"{label(axis.name, 90)}: {axis.text(axis.values[place])}" for axis in (y, x))
            about = [label(self.about[place], 90)] if self.about and self.about[place] else []
            hover.append("<br>".join((f"<b>{look.label}</b>", *about, *said)))
        return {
            "marker.symbol": [look.symbol + "-open" * gone for look, gone in zip(self.looks, beaten, strict=True)],
            "text": [[name] for name in names],
            "textposition": label_places(places, names, self.width),
            "hovertext": [[text] for text in hover],
        }

    def _beaten(self, x: Against, y: Against) -> list[bool]:
        if not self.rivals:
            return [False] * len(self.looks)
        found = points(x, y)
        return surely_dominated([None if place in self.unjudged else point for place, point in enumerate(found)])

    @property
    def _is_crowded(self) -> bool:
        return len(self.looks) > MOST_NAMED

    def _named(self, y: Against, dull: Sequence[bool]) -> set[int]:
        """Indices of the points with a name beside them, including the baseline."""
        every = range(len(self.looks))
        if not self._is_crowded:
            return set(every)
        spans = y.spans()
        told = [place for place in every if not dull[place]]
        told.sort(key=lambda place: span[1] if (span := spans[place]) else math.inf)
        return {*told[:MOST_NAMED], *([0] if self.rivals else [])}
