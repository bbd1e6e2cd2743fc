"""The space of a search on a base model: the axes that apply to a model, and the arms of drawn values.

What a study asks of a search is here, too: problems of its space and objectives, and its cost in a plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pydantic import ValidationError

from ablate.data.identity import MadeSource
from ablate.planning.plan import ArmPlan
from ablate.readable import clock
from ablate.study.arms import DATA, SOURCES, TRAIN, TUNED, Arm, ArmBuilder, Edit
from ablate.study.complaints import Problem, StudyError
from ablate.study.rung_reader import RungReader
from ablate.study.sections import StudySections
from ablate.study.space import distributions
from ablate.study.study import Study
from ablate.training.spec import TrainSpec
from ablate.wings.search.search_axes import AnyAxis, Axis, Relative, multiples
from ablate.wings.search.search_spec import SearchSpec
from evals.costs.machine import Speed
from store.documents.study import UNJUDGED
from zoo.settings.axis import Spec
from zoo.settings.edits import Edits
from zoo.spec import ModelSpec

if TYPE_CHECKING:
    from optuna.distributions import FloatDistribution, IntDistribution


Params = dict[str, Any]
"""Values as optuna stores them, by path: a ratio is a number, a list is JSON."""
Pick = Callable[[str, AnyAxis], Any]

SEARCH = ("search", "space")
KIND, PATTERN, LAYER = ".kind", "pattern", "pattern."


class SearchSpace:
    """Axes by path, those of whole parts before those inside them, on a base model."""

    def __init__(self, builder: ArmBuilder, space: Mapping[str, Axis]) -> None:
        self.builder = builder
        self.base = builder.build("", [], SEARCH)
        ordered = sorted(space.items(), key=lambda item: (item[0].count("."), not item[0].endswith(KIND)))
        self.axes = {path: self._on_base(path, axis) for path, axis in ordered}
        self._known: dict[tuple[Any, ...], bool] = {}

    def _on_base(self, path: str, axis: Axis) -> AnyAxis:
        """The axis, in numbers if it is relative to the base. Raises StudyError if the base has no number there."""
        relative = axis if isinstance(axis, Relative) else multiples(axis)
        if relative is None or (relative is not axis and not self._problems([edit_of(path, relative.ends[0])])):
            assert not isinstance(axis, Relative)
            return axis  # `block.ffn.d_ff: [2x, 4x]` are two values
        base = number_at(self.base.model, self.base.train, path)
        where = (*SEARCH, *path.split("."))
        if base is None:
            reason = f"multiples such as {relative.ends[0]} need a number in the base, which has none here"
            raise StudyError([self.builder.origins.problem(where, reason)])
        try:
            return relative.around(base)
        except ValueError as error:
            raise StudyError([self.builder.origins.problem(where, str(error))]) from None

    def draw(self, pick: Pick) -> Params:
        """A value for every axis that applies to the model, given the values before it."""
        params: Params = {}
        for path, axis in self.axes.items():
            if self.has(params, path):
                params[path] = pick(path, axis)
        return params

    def has(self, params: Params, path: str) -> bool:
        """Whether a model with the parts chosen so far has a setting. This depends only on the parts around the setting
        and, for a layer or a named block, on the layers."""
        if not self._has_layer(params, path):
            return False
        around = {part: params[part] for part in self._around(path) if part in params}
        key = (path, *around.items())
        if key not in self._known:
            edits = self.edits(around)
            problems = self._problems([*edits, *self._as_edits({path: self.axes[path].ends[0]})])
            self._known[key] = not any(problem.kind == "unknown_key" for problem in problems)
        return self._known[key]

    def _has_layer(self, params: Params, path: str) -> bool:
        if path.startswith(LAYER):
            layers: int = params.get("n_layers", self.base.model.n_layers)
            return int(path.removeprefix(LAYER)) < layers
        varies = any(axis == PATTERN or axis.startswith(LAYER) for axis in self.axes)
        if not (path.startswith("blocks.") and varies):
            return True
        pattern = self._pattern({axis: self.axes[axis].value(params[axis]) for axis in params})
        return path.split(".")[1] in (*pattern, *self.base.model.first)

    def _around(self, path: str) -> list[str]:
        return [part for part in self.axes if part != path and path.startswith(f"{part.removesuffix(KIND)}.")]

    def edits(self, params: Params) -> list[Edit]:
        return self._as_edits(self.settings(params))

    def _as_edits(self, settings: Edits) -> list[Edit]:
        return [edit_of(path, value) for path, value in self.written(settings).items()]

    def settings(self, params: Params) -> Edits:
        """Values as the study spells them, by path of the axis."""
        return {path: self.axes[path].value(known) for path, known in params.items()}

    def written(self, settings: Edits) -> Edits:
        """Settings as edits of a model: single layers become a whole pattern."""
        if not any(path.startswith(LAYER) for path in settings):
            return settings
        others = {path: value for path, value in settings.items() if not path.startswith(LAYER) and path != PATTERN}
        return {**others, PATTERN: self._pattern(settings)}

    def _pattern(self, settings: Edits) -> list[str]:
        """The block of every layer after the first ones."""
        pattern = list(settings.get(PATTERN, self.base.model.pattern))
        single = {int(path.removeprefix(LAYER)): value for path, value in settings.items() if path.startswith(LAYER)}
        if not single:
            return pattern
        count = settings.get("n_layers", self.base.model.n_layers)
        return [single.get(layer, pattern[layer % len(pattern)]) for layer in range(count)]

    def arm(self, name: str, params: Params) -> Arm:
        """The arm with these values. Raises StudyError."""
        return self.builder.build(name, self.edits(params), SEARCH)

    def random(self, rng: np.random.Generator) -> Params:
        """A random value for every axis, each drawn independently."""
        return self.draw(lambda _, axis: random_value(axis, rng))

    def all(self) -> Iterator[Params]:
        """Every combination. Raises ValueError for an axis with infinitely many values."""
        return self.combinations(lambda _, axis: values_of(axis))

    def combinations(self, values: Callable[[str, AnyAxis], Iterable[Any]]) -> Iterator[Params]:
        """Every combination of these values of the axes that apply to a model."""

        def rest(params: Params, paths: list[str]) -> Iterator[Params]:
            if not paths:
                yield params
                return
            path, *others = paths
            if not self.has(params, path):
                yield from rest(params, others)
                return
            for value in values(path, self.axes[path]):
                yield from rest({**params, path: value}, others)

        return rest({}, list(self.axes))

    def _problems(self, edits: list[Edit]) -> tuple[Problem, ...]:
        try:
            self.builder.build("", edits, SEARCH)
        except StudyError as error:
            return error.problems
        return ()

    def problems(self) -> Iterator[Problem]:
        """Paths that no model of the space has, and unknown kinds."""
        for path, axis in self.axes.items():
            shared = self.builder.shared_reason(tuple(path.split(".")))
            if shared or path.split(".")[0] in (*SOURCES, DATA):
                reason = shared or "a search may vary only the model and train"
                yield self.builder.origins.problem((*SEARCH, *path.split(".")), reason, at_key=True)
                continue
            # An axis is valid if each of its values is known with some choice of the parts around it. Combinations of
            # numbers that do not fit are left to the draws: each number may fit others.
            parts = SearchSpace(self.builder, {part: self.axes[part] for part in self._around(path)}).all()
            found: list[list[tuple[Problem, ...]]] = []
            for around in parts:
                edits = self.edits(around)
                found.append([self._problems([*edits, *self._as_edits({path: value})]) for value in axis.ends])
            for of_value in zip(*found, strict=True):
                if all(any(p.kind in ("unknown_key", "unknown_choice") for p in problems) for problems in of_value):
                    yield from of_value[0]


def number_at(spec: ModelSpec, train: TrainSpec, path: str) -> float | None:
    """The number at a path of a model or its training, ratios and defaults resolved; None if there is none. A map that
    can be written as a number, such as the weight decay of every matrix, is that number."""
    blocks = {"block": spec.block.resolve(spec.d_model), "blocks": {name: spec.named(name) for name in spec.blocks}}
    here: Any = {**dict(spec), **blocks, TRAIN: train}
    for key in path.split("."):
        here = here.get(key) if isinstance(here, Mapping) else getattr(here, key, None)
    candidates = [each for _, each in here] if isinstance(here, Spec) else [here]
    numbers = [each for each in candidates if isinstance(each, int | float) and not isinstance(each, bool)]
    return next((number for number in numbers if here in (number, _written_as(here, number))), None)


def _written_as(part: Any, number: float) -> Any:
    """The part that a number stands for in a study; None if it stands for none."""
    try:
        return type(part).model_validate(number) if isinstance(part, Spec) else None
    except ValidationError:
        return None


def edit_of(path: str, value: Any) -> Edit:
    keys = tuple(path.split("."))
    return Edit((*SEARCH, *keys), keys, value, TUNED)


def random_value(axis: AnyAxis, rng: np.random.Generator) -> Any:
    """A random value of an axis."""
    spread, kinds = axis.distribution, distributions()
    if isinstance(spread, kinds.FloatDistribution | kinds.IntDistribution):
        if spread.log:
            drawn = math.exp(rng.uniform(math.log(spread.low), math.log(spread.high)))
            return round(drawn) if isinstance(spread, kinds.IntDistribution) else drawn
        if spread.step is None:
            return float(rng.uniform(spread.low, spread.high))
    values = values_of(axis)
    return values[rng.integers(len(values))]


def spread_of(axis: AnyAxis) -> FloatDistribution | IntDistribution:
    """Distribution of a numeric axis."""
    return cast("FloatDistribution | IntDistribution", axis.distribution)


def is_listed(axis: AnyAxis) -> bool:
    """Whether an axis has finitely many values."""
    spread = axis.distribution
    return not isinstance(spread, distributions().FloatDistribution) or spread.step is not None


def values_of(axis: AnyAxis) -> list[Any]:
    """Every value of an axis. Raises ValueError if there are infinitely many."""
    spread, kinds = axis.distribution, distributions()
    if isinstance(spread, kinds.CategoricalDistribution):
        return list(spread.choices)
    if not isinstance(spread, kinds.FloatDistribution | kinds.IntDistribution) or spread.step is None:
        raise ValueError(f"{spread} has infinitely many values")
    count = round((spread.high - spread.low) / spread.step) + 1
    return [spread.low + spread.step * number for number in range(count)]


def problems(
    reader: RungReader, builder: ArmBuilder, sections: StudySections, arms: Sequence[Arm], factors: Sequence[str]
) -> Iterator[Problem]:
    """Problems of a search's space."""
    asked: SearchSpec | None = getattr(sections, "search", None)
    if asked is not None:
        try:
            yield from SearchSpace(builder, asked.space).problems()
        except StudyError as error:
            yield from error.problems


def check(study: Study) -> None:
    """Raises StudyError for an objective that the study's data do not have."""
    made = isinstance(study.data, MadeSource)
    absent = "bits_per_byte" if made else "accuracy"
    if study.search is not None and absent in study.search.objectives:
        said = f"{study.data.source} has no bytes" if made else "text has no answers"
        raise study.error("search.objectives", f"{said}: there is no {absent}")


def plan_lines(study: Study, base: ArmPlan, speed: Speed, at_once: float) -> list[str]:
    """Cost of a search, if all trials cost what the base does, and warnings; empty for a study without a search."""
    spec: SearchSpec | None = study.search
    if spec is None:
        return []
    last = spec.confirming if study.scale not in UNJUDGED else 0
    whole, each = spec.whole_runs * spec.seeds + last, base.estimated_seconds(speed)
    validations = math.ceil(1 / base.train.validate_every - 1e-9)
    trials = (
        f"trials at the cost of {spec.trials} whole ones"
        if spec.pruning(validations)
        else f"up to {spec.trials} trials"
    )
    kept = f", and {last} runs that confirm the best against {base.name}" if last else ""
    begun = f"; trials start at {100 * spec.shares[0]:.3g} % of the budget" if spec.fidelity else ""
    lines = [
        f"Search: {trials}{kept}{begun}: {whole * base.flops:.3g} FLOPs, about"
        f" {clock(max(1.0, whole * each / at_once))} if all cost as much as {base.name}"
    ]
    return [*lines, *spec.warnings(validations)]
