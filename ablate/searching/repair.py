"""The legal settings nearest to a proposal: sizes move onto a constraint, and all else stays as proposed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import optuna

from ablate.study.search_axes import AnyAxis
from ablate.study.search_space import Params, SearchSpace, values_of

Distances = Callable[[Params], Mapping[str, float]]
"""Distance of settings from each constraint that they violate; empty where they are legal."""

NEAREST, SPREAD = 6, 9
"""Values that are tried of an axis with many: the nearest on each side, and so many over its range."""
MOST_MOVES = 8
"""Settings that are changed one after the other before a proposal is given up."""


def repaired(space: SearchSpace, params: Params, distances: Distances) -> Params | None:
    """The legal settings that a greedy descent of the distances finds; None where it finds none.

    Each move changes one setting: of the moves to legal settings the nearest, else the one that lessens the sum of all
    distances most. Settings of training stay, unless nothing else helps.
    """
    here, left = params, sum(distances(params).values())
    for _ in range(MOST_MOVES):
        if left == 0:
            return here
        found = _move(space, here, distances, "model", left) or _move(space, here, distances, "train", left)
        if found is None:
            return None
        left, here = found
    return here if left == 0 else None


def _move(
    space: SearchSpace, here: Params, distances: Distances, section: str, left: float
) -> tuple[float, Params] | None:
    """The best change of one setting, and the distance that it leaves."""
    moves = sorted(_moves(space, here, section == "train"), key=lambda move: move[0])
    best: tuple[float, float, Params] | None = None
    for far, changed in moves:
        total = sum(distances(changed).values())
        if total == 0:
            return 0.0, changed
        if total < left - 1e-12 and (best is None or (total, far) < best[:2]):
            best = total, far, changed
    return None if best is None else (best[0], best[2])


def _moves(space: SearchSpace, here: Params, train: bool) -> Iterator[tuple[float, Params]]:
    """Settings that differ in one axis, with the change as a share of the axis."""
    for path, axis in space.axes.items():
        if path in here and path.startswith("train.") == train:
            for far, value in _others(axis, here[path]):
                yield far, _completed(space, {**here, path: value})


def _completed(space: SearchSpace, params: Params) -> Params:
    """With a middle value for settings that a changed part has and the former did not, and without those it lacks."""
    return space.draw(lambda path, axis: params.get(path, _middle(axis)))


def _middle(axis: AnyAxis) -> object:
    spread = axis.distribution
    if isinstance(spread, optuna.distributions.FloatDistribution) and spread.step is None:
        return _spread(spread.low, spread.high, spread.log, 3)[1]
    values = values_of(axis)
    return values[len(values) // 2]


def _others(axis: AnyAxis, value: object) -> list[tuple[float, object]]:
    """Other values of an axis, each with its distance from this one as a share of the range; choices are all far."""
    spread = axis.distribution
    if isinstance(spread, optuna.distributions.CategoricalDistribution):
        return [(1.0, other) for other in spread.choices if other != value]
    assert isinstance(value, int | float)
    scale = math.log if spread.log else float  # type: ignore[attr-defined]
    width = scale(spread.high) - scale(spread.low)  # type: ignore[attr-defined]
    return [(abs(scale(other) - scale(value)) / width, other) for other in _near(axis, value) if other != value]


def _near(axis: AnyAxis, value: float) -> list[float]:
    spread = axis.distribution
    if isinstance(spread, optuna.distributions.FloatDistribution) and spread.step is None:
        return _spread(spread.low, spread.high, spread.log, SPREAD)
    values = values_of(axis)
    if len(values) <= 2 * NEAREST + SPREAD:
        return values
    at = int(np.argmin(np.abs(np.array(values) - value)))
    evenly = [values[round(i)] for i in np.linspace(0, len(values) - 1, SPREAD)]
    return sorted({*values[max(0, at - NEAREST) : at + NEAREST + 1], *evenly})


def _spread(low: float, high: float, log: bool, count: int) -> list[float]:
    return [float(each) for each in (np.geomspace if log else np.linspace)(low, high, count)]
