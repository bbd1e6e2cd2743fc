"""Trials found at one scale, at another: sizes as multiples of the base's, moved to what is legal there."""

from __future__ import annotations

import math
from typing import Any

from ablate.searching.repair import repaired
from ablate.study.problems import StudyError
from ablate.study.search_axes import AnyAxis, Choice, label
from ablate.study.search_space import Params, SearchSpace, is_listed, number_at, spread_of, values_of
from zoo.settings.edits import Edits


def at_scale(here: SearchSpace, there: SearchSpace, params: Params) -> Edits | None:
    """Settings at another scale; None where no model of its space is like them.

    A size that the base has, too, keeps its ratio to the base's: 1.5 times the base's width there. Other settings stay.
    """
    moved: Params = {}
    for path, axis in there.axes.items():
        value = _moved(here, there, path, axis, params)
        if value is not None and there.has(moved, path):
            moved[path] = value
    whole = there.draw(lambda path, axis: moved.get(path, _any(axis)))

    def distances(settings: Params) -> dict[str, float]:
        try:
            there.arm("", settings)
        except StudyError as error:
            return {"": float(len(error.problems))}
        return {}

    legal = repaired(there, whole, distances) if distances(whole) else whole
    return None if legal is None else there.written(there.settings(legal))


def _moved(here: SearchSpace, there: SearchSpace, path: str, axis: AnyAxis, params: Params) -> Any:
    """The value of an axis there that corresponds to the one here; None where the trial lacks it."""
    if path not in params or path not in here.axes:
        return None
    value = here.axes[path].value(params[path])
    bases = [number_at(space.base.model, space.base.train, path) for space in (here, there)]
    if isinstance(value, int | float) and not isinstance(value, bool) and bases[0] and bases[1]:
        return _nearest(axis, value / bases[0] * bases[1])
    if isinstance(axis, Choice):
        return params[path] if params[path] in map(label, axis.choice) else None
    return _nearest(axis, params[path])


def _nearest(axis: AnyAxis, value: float) -> Any:
    """The value of an axis nearest to a number."""
    if isinstance(axis, Choice):
        numbers = [choice for choice in axis.choice if isinstance(choice, int | float)]
        return min(numbers, key=lambda number: abs(number - value), default=None)
    if is_listed(axis):
        return min(values_of(axis), key=lambda number: abs(number - value))
    return min(max(value, spread_of(axis).low), spread_of(axis).high)


def _any(axis: AnyAxis) -> Any:
    """A middle value of an axis that the trial had not."""
    if not is_listed(axis):
        spread = spread_of(axis)
        return math.sqrt(spread.low * spread.high) if spread.log else (spread.low + spread.high) / 2
    values = values_of(axis)
    return values[len(values) // 2]
