"""Repair of illegal proposals: find nearby legal settings by changing few settings and keeping the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ablate.wings.search.search_axes import AnyAxis, Choice
from ablate.wings.search.search_space import Params, SearchSpace, is_listed, spread_of, values_of

Distances = Callable[[Params], Mapping[str, float]]
"""Settings → distance from each constraint that they violate; empty if they are legal."""

NEAREST, SPREAD = 6, 9
"""Values tried on an axis with many: this number of neighbours on each side, and this number over the range."""
MOST_MOVES, BEAM = 4, 4
"""Maximum number of changed settings, and the width of the beam search."""


def repaired(space: SearchSpace, params: Params, distances: Distances) -> Params | None:
    """The first legal settings that a beam search over single changes finds; None if it finds none.

    In each round, the smallest change that makes the settings legal wins; otherwise the `BEAM` candidates with the
    least sum of distances go on. Training settings are changed only if changes of the model do not help.
    """
    for section in (False, True):
        beam, seen = [params], set[str]()
        for _ in range(MOST_MOVES):
            reached: list[tuple[float, float, Params]] = []
            moves = [move for here in beam for move in _moves(space, here, section)]
            for far, changed in sorted(moves, key=lambda move: move[0]):
                key = repr(sorted(changed.items()))
                if key in seen:
                    continue
                seen.add(key)
                left = sum(distances(changed).values())
                if left == 0:
                    return changed
                reached.append((left, far, changed))
            beam = [changed for *_, changed in sorted(reached, key=lambda each: each[:2])[:BEAM]]
    return None


def _moves(space: SearchSpace, here: Params, train: bool) -> Iterator[tuple[float, Params]]:
    """Settings that differ on one axis, each with the size of the change as a share of the axis. train: change training
    settings, else the model's."""
    for path, axis in space.axes.items():
        if path in here and path.startswith("train.") == train:
            for far, value in _others(axis, here[path]):
                # settings new to the part get a middle value, those it lacks are dropped
                changed = {**here, path: value}
                yield far, space.draw(lambda path, axis, now=changed: now.get(path, middle(axis)))


def middle(axis: AnyAxis) -> Any:
    """A value in the middle of an axis."""
    if not is_listed(axis):
        return _evenly(axis, 3)[1]
    values = values_of(axis)
    return values[len(values) // 2]


def _others(axis: AnyAxis, value: Any) -> list[tuple[float, object]]:
    """Other values of an axis, with their distance from `value` as a share of the range; 1 between choices."""
    if isinstance(axis, Choice):
        return [(1.0, other) for other in values_of(axis) if other != value]
    spread = spread_of(axis)
    here, low, high = (_on_scale(each, spread.log) for each in (value, spread.low, spread.high))
    others = (other for other in _near(axis, value) if other != value)
    return [(abs(_on_scale(other, spread.log) - here) / (high - low), other) for other in others]


def _on_scale(number: float, log: bool) -> float:
    return math.log(number) if log else float(number)


def _near(axis: AnyAxis, value: float) -> list[float]:
    if not is_listed(axis):
        return _evenly(axis, SPREAD)
    values = values_of(axis)
    if len(values) <= 2 * NEAREST + SPREAD:
        return values
    at = int(np.argmin(np.abs(np.array(values) - value)))
    evenly = [values[round(i)] for i in np.linspace(0, len(values) - 1, SPREAD)]
    return sorted({*values[max(0, at - NEAREST) : at + NEAREST + 1], *evenly})


def _evenly(axis: AnyAxis, count: int) -> list[float]:
    spread = spread_of(axis)
    return [float(each) for each in (np.geomspace if spread.log else np.linspace)(spread.low, spread.high, count)]
