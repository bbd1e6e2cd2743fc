"""Share of a cost's variance that each setting explains: total-effect Sobol' indices over random settings.

    share_j = E[Var(f | all but x_j)] / Var f

Settings are drawn independently, including those that a model does not have; draws that cannot be built are discarded.
If the settings except the learning rate have few combinations, equally probable, all are computed and the shares are
exact. Otherwise E[Var(f | all but x_j)] is the mean of (f(x) − f(x with x_j redrawn))² / 2 (Jansen 1999), and intervals
are from a bootstrap over the draws. A setting that the cost does not depend on has exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.searching.trial_runner import StudyTrialRunner
from ablate.study.problems import StudyError
from ablate.study.search_axes import AnyAxis
from ablate.study.search_space import Params, is_listed, random_value, values_of
from store.documents.tuning import RATE

MOST = 2048
"""Largest number of combinations that are all computed, at a millisecond each."""
DRAWS, TRIES, RESAMPLES = 512, 20, 400
LEVEL = 0.9

Floats = NDArray[np.float64]


class VarianceShare(NamedTuple):
    """Share of a variance."""

    share: float
    interval: tuple[float, float] | None
    """The 90 % interval; None if the share is exact."""


def cost_shares(lab: StudyTrialRunner, names: Sequence[str], seed: int = 0) -> dict[str, dict[str, VarianceShare]]:
    """Share of every setting, keyed by cost, over settings that can be built. No cost depends on the learning rate."""
    axes = {path: axis for path, axis in lab.space.axes.items() if path != RATE}
    if not names:
        return {}
    costs = _Costs(lab, names)
    if all(map(_is_uniform, axes.values())) and math.prod(len(values_of(axis)) for axis in axes.values()) <= MOST:
        nothing, found = VarianceShare(0.0, None), _exact(costs, {path: values_of(axis) for path, axis in axes.items()})
    else:
        nothing, found = VarianceShare(0.0, (0.0, 0.0)), _estimated(costs, axes, np.random.default_rng(seed))
    return {
        name: {path: found[path][place] if path in found else nothing for path in lab.space.axes}
        for place, name in enumerate(names)
    }


class _Costs:
    """Costs of settings; NaN if they cannot be built. Each model is computed once."""

    def __init__(self, lab: StudyTrialRunner, names: Sequence[str]) -> None:
        self.lab, self.names = lab, names
        rng = np.random.default_rng(0)
        self._rate = {path: random_value(axis, rng) for path, axis in lab.space.axes.items() if path == RATE}
        self._known: dict[tuple[Any, ...], list[float]] = {}

    def __call__(self, values: Params) -> list[float]:
        """values: a value of every setting, including those that the model does not have."""
        given = {**self._rate, **values}
        params = self.lab.space.draw(lambda path, _: given[path])
        key = tuple(params.items())
        if key not in self._known:
            try:
                self._known[key] = list(self.lab.costs(params, self.names).values())
            except StudyError:
                self._known[key] = [math.nan] * len(self.names)
        return self._known[key]


def _is_uniform(axis: AnyAxis) -> bool:
    """Whether an axis has finitely many values of equal probability."""
    return is_listed(axis) and not getattr(axis.distribution, "log", False)


def _exact(costs: _Costs, values: Mapping[str, Sequence[Any]]) -> dict[str, list[VarianceShare]]:
    every = [costs(dict(zip(values, of, strict=True))) for of in product(*values.values())]
    # (values of setting 1, …, values of setting n, costs); NaN if a combination cannot be built
    grid = np.array(every, dtype=float).reshape(*map(len, values.values()), len(costs.names))
    built = ~np.isnan(grid)
    known, every_axis = np.where(built, grid, 0.0), tuple(range(len(values)))
    whole = _squares(known, built, every_axis).sum(axis=every_axis)
    found = {}
    for place, path in enumerate(values):
        within = _squares(known, built, place).sum(axis=every_axis)
        shares = np.divide(within, whole, out=np.zeros_like(whole), where=whole > 0)
        found[path] = [VarianceShare(each, None) for each in shares.tolist()]
    return found


def _squares(known: Floats, built: NDArray[np.bool_], over: int | tuple[int, ...]) -> Floats:
    """Squared deviations of the known costs from their means over axes; 0 for deviations of rounding size."""
    means = known.sum(axis=over, keepdims=True) / np.maximum(built.sum(axis=over, keepdims=True), 1)
    far = known - means
    squares: Floats = np.where(built & (np.abs(far) > 1e-9 * np.abs(means)), far, 0.0) ** 2
    return squares


def _estimated(costs: _Costs, axes: Mapping[str, AnyAxis], rng: np.random.Generator) -> dict[str, list[VarianceShare]]:
    heres, theres = [], []
    for _ in range(DRAWS):
        values = {path: random_value(axis, rng) for path, axis in axes.items()}
        here = costs(values)
        if not any(map(math.isnan, here)):
            heres.append(here)
            theres.append([_anew(costs, values, path, axis, rng) for path, axis in axes.items()])
    if not heres:
        return {}
    picks = np.vstack([np.arange(len(heres)), rng.integers(0, len(heres), (RESAMPLES, len(heres)))])
    found = {}
    for path, there in zip(axes, np.swapaxes(np.array(theres), 0, 1), strict=True):
        pairs = np.stack([np.array(heres), there])[:, picks]  # (2, 1 + resamples, draws, costs); index 0 has all draws
        halves, whole = ((pairs[1] - pairs[0]) ** 2).mean(axis=1) / 2, pairs.var(axis=(0, 2))
        shares = np.divide(halves, whole, out=np.zeros_like(whole), where=whole > 0).clip(0.0, 1.0)
        low, high = np.quantile(shares, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        columns = zip(shares[0].tolist(), low.tolist(), high.tolist(), strict=True)
        found[path] = [VarianceShare(share, (min(low, share), max(high, share))) for share, low, high in columns]
    return found


def _anew(costs: _Costs, values: Params, path: str, axis: AnyAxis, rng: np.random.Generator) -> list[float]:
    """Costs with one setting redrawn, given the others; unchanged after `TRIES` draws that cannot be built."""
    for _ in range(TRIES):
        there = costs({**values, path: random_value(axis, rng)})
        if not any(map(math.isnan, there)):
            return there
    return costs(values)
