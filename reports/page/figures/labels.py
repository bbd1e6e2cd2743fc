"""Placement of point names with as little overlap as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
