"""A search's space on a base model: which axes a model is asked, and the arm that an answer makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ablate.study.arms import DATA, START, TUNED, Arm, ArmBuilder, Edit
from ablate.study.problems import Problem, StudyError
from ablate.study.search_axes import AnyAxis
from ablate.study.space import distributions
from zoo.edits import Edits

Params = dict[str, Any]
"""Values as optuna keeps them, by path: a ratio is a number, a list is JSON."""
Pick = Callable[[str, AnyAxis], Any]

SEARCH = ("search", "space")


class SearchSpace:
    """Axes by path, those of whole parts before those inside them."""

    def __init__(self, builder: ArmBuilder, space: Mapping[str, AnyAxis]) -> None:
        self.builder = builder
        self.axes = dict(sorted(space.items(), key=lambda item: item[0].count(".")))
        self._known: dict[tuple[Any, ...], bool] = {}

    def draw(self, pick: Pick) -> Params:
        """A value for every axis that the model has, given those before."""
        params: Params = {}
        for path, axis in self.axes.items():
            if self.has(params, path):
                params[path] = pick(path, axis)
        return params

    def has(self, params: Params, path: str) -> bool:
        """Whether a model with the parts chosen so far has a setting. Only parts around it can decide that."""
        around = {part: params[part] for part in self._around(path) if part in params}
        key = (path, *around.items())
        if key not in self._known:
            edit = edit_of(path, self.axes[path].ends[0])
            problems = self._problems([*self.edits(around), edit])
            self._known[key] = not any(problem.kind == "unknown_key" for problem in problems)
        return self._known[key]

    def _around(self, path: str) -> list[str]:
        return [part for part in self.axes if path.startswith(f"{part}.")]

    def edits(self, params: Params) -> list[Edit]:
        return [edit_of(path, value) for path, value in self.settings(params).items()]

    def settings(self, params: Params) -> Edits:
        """Values as the study's edits spell them."""
        return {path: self.axes[path].value(known) for path, known in params.items()}

    def arm(self, name: str, params: Params) -> Arm:
        """The base with these values. Raises StudyError."""
        return self.builder.build(name, self.edits(params), SEARCH)

    def random(self, rng: np.random.Generator) -> Params:
        """Every axis drawn by itself."""
        return self.draw(lambda _, axis: _random(axis, rng))

    def all(self) -> Iterator[Params]:
        """Every combination, where axes have steps."""
        yield from self._rest({}, list(self.axes))

    def _rest(self, params: Params, paths: list[str]) -> Iterator[Params]:
        if not paths:
            yield params
            return
        path, *rest = paths
        if not self.has(params, path):
            yield from self._rest(params, rest)
            return
        for value in _values(self.axes[path]):
            yield from self._rest({**params, path: value}, rest)

    def _problems(self, edits: list[Edit]) -> tuple[Problem, ...]:
        try:
            self.builder.build("", edits, SEARCH)
        except StudyError as error:
            return error.problems
        return ()

    def problems(self) -> Iterator[Problem]:
        """Paths that no model of the space has, and kinds that there are not."""
        for path, axis in self.axes.items():
            shared = self.builder.shared_reason(tuple(path.split(".")))
            if shared or path.split(".")[0] in (START, DATA):
                reason = shared or "a search may vary only the model and train"
                yield self.builder.origins.problem((*SEARCH, *path.split(".")), reason, at_key=True)
                continue
            yield from self._axis_problems(path, axis)

    def _axis_problems(self, path: str, axis: AnyAxis) -> Iterator[Problem]:
        """An axis is good where each value is known with some parts around it. Numbers that do not go together are
        for the draws to find out: they may go with other numbers.
        """
        parts = SearchSpace(self.builder, {part: self.axes[part] for part in self._around(path)}).all()
        found: list[list[tuple[Problem, ...]]] = []
        for around in parts:
            edits = self.edits(around)
            found.append([self._problems([*edits, edit_of(path, value)]) for value in axis.ends])
        for of_value in zip(*found, strict=True):
            if all(any(p.kind in ("unknown_key", "unknown_choice") for p in problems) for problems in of_value):
                yield from of_value[0]


def space_problems(builder: ArmBuilder, space: Mapping[str, AnyAxis]) -> Iterator[Problem]:
    """Problems of a search's space."""
    return SearchSpace(builder, space).problems()


def edit_of(path: str, value: Any) -> Edit:
    keys = tuple(path.split("."))
    return Edit((*SEARCH, *keys), keys, value, TUNED)


def _random(axis: AnyAxis, rng: np.random.Generator) -> Any:
    spread, kinds = axis.distribution, distributions()
    if isinstance(spread, kinds.CategoricalDistribution):
        return spread.choices[rng.integers(len(spread.choices))]
    if not isinstance(spread, kinds.FloatDistribution | kinds.IntDistribution):
        raise TypeError(f"unknown distribution {spread}")
    if spread.step is not None:
        values = _values(axis)
        return values[rng.integers(len(values))]
    if isinstance(spread, kinds.FloatDistribution) and spread.log:
        return float(math.exp(rng.uniform(math.log(spread.low), math.log(spread.high))))
    return float(rng.uniform(spread.low, spread.high))


def _values(axis: AnyAxis) -> list[Any]:
    """Every value of an axis that has only so many."""
    spread, kinds = axis.distribution, distributions()
    if isinstance(spread, kinds.CategoricalDistribution):
        return list(spread.choices)
    if not isinstance(spread, kinds.FloatDistribution | kinds.IntDistribution) or spread.step is None:
        raise ValueError(f"{spread} has infinitely many values")
    count = round((spread.high - spread.low) / spread.step) + 1
    return [spread.low + spread.step * number for number in range(count)]
