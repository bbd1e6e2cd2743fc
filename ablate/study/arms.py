"""Arms: edits of the base model and its training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

from pydantic import ValidationError

from ablate.data.sources import DataSource, TextSource
from ablate.data.tokenizers import TokenizerSpec
from ablate.data.tokenizers.bytes import BytesTokenizer
from ablate.study.complaints import Problem, StudyError, complaints
from ablate.study.layers import Origins, Target, common_length
from ablate.study.sections import StudySections
from ablate.study.sources import Source, source_kinds
from ablate.training.spec import PARTS, TrainSpec
from store.documents import JsonObject
from zoo.costs import refuse_impossible
from zoo.errors import SpecError
from zoo.settings.axis import Choice, Spec
from zoo.settings.edits import Edits, SpecJson, expand, merge
from zoo.settings.explain import explain
from zoo.spec import ModelSpec

Model = TypeVar("Model", bound=Source)

TRAIN = "train"
DATA = "data"


class OwnData(Spec):
    """An arm's own data: the same text through a tokenizer of its own."""

    tokenizer: Annotated[TokenizerSpec, Choice("ablate.data.tokenizers")] = BytesTokenizer()
    """Tokenizer of this arm alone, as in `data.tokenizer`: losses are then compared per byte."""


SOURCES = source_kinds()
SECTIONS: dict[str, type[Spec]] = {TRAIN: TrainSpec, **SOURCES, DATA: OwnData}
"""Sections of an arm besides its model."""
TUNED = 2_000_000
"""Layer number of tuning's edits: after every layer of the file and after grids."""


@dataclass(frozen=True)
class Edit:
    """One edit of a model or its training, as the user wrote it.

    `target` is its path in the study (`("arms", "post", "block", "norm_placement")`), `path` that of the edited setting
    (`("block", "norm_placement")`). Edits of a later layer override those of an earlier one.
    """

    target: Target
    path: Target
    value: Any
    layer: int

    @property
    def data(self) -> SpecJson:
        """The edit as a nested map."""
        return expand({".".join(self.path): self.value})


@dataclass(frozen=True)
class Arm:
    """A model and its training, with its edits of the base, and their path in the study (`target`)."""

    name: str
    edits: JsonObject
    model: ModelSpec
    train: TrainSpec
    data: DataSource
    target: Target
    own: tuple[Edit, ...] = field(default=(), repr=False, compare=False)
    """The edits as they were written."""
    cell: JsonObject = field(default_factory=dict)
    """Its place in a grid: the value of each factor, by path."""
    given: Mapping[str, Source] = field(default_factory=dict)
    """Other models that it needs, by the section that names them."""
    tuned: JsonObject = field(default_factory=dict)
    """Settings that tuning chose, by path."""
    share: float = 1.0
    """Share of the study's budget: short tuning runs spend less."""
    seeds: tuple[int, ...] | None = None
    """Its own seeds, if not the study's: `seeds: auto` adds seeds to arms that are not settled."""

    @property
    def identity(self) -> tuple[str, ...]:
        """Identity of an arm: equal for arms whose training is the same."""
        sources = (f"{section} {source.model_dump_json()}" for section, source in self.given.items())
        return self.model.digest, self.train.model_dump_json(), self.data.model_dump_json(), *sources

    def source(self, kind: type[Model]) -> Model | None:
        """The other model of this kind that it needs, if any."""
        return next((each for each in self.given.values() if isinstance(each, kind)), None)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the arms whose trained models it needs."""
        return tuple(source.arm for source in self.given.values() if source.arm is not None)

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Paths of the checkpoints that it needs."""
        return tuple(source.checkpoint for source in self.given.values() if source.checkpoint)

    def place(self, path: str) -> str:
        """Dotted path in the study of the value that a setting of the arm has, or could be given."""
        keys = tuple(path.split("."))
        for edit in reversed(self.own):
            if keys[: len(edit.path)] == edit.path:
                return ".".join((*edit.target, *keys[len(edit.path) :]))
        return ".".join((*self.target, *keys))


def tuning_edit(path: str, value: Any, *place: str) -> Edit:
    """The edit for a value that `tune.space` lists (at `place` in it), or that tuning chose."""
    keys = tuple(path.split("."))
    return Edit(("tune", "space", *keys, *place), keys, value, TUNED)


def edits_in(written: Edits, root: Target, layer: int, path: Target = ()) -> Iterator[Edit]:
    """The edits in a nested map. A map with a `kind` is one edit, since it may replace a whole part."""
    for key, value in written.items():
        here = (*path, key)
        if isinstance(value, Mapping) and value and "kind" not in value:
            yield from edits_in(value, root, layer, here)
        else:
            yield Edit((*root, *here), here, value, layer)


class ArmBuilder:
    """Builds arms from edits, and attributes errors to the edits that cause them."""

    def __init__(
        self,
        preset: Edits,
        base: Iterable[Edit],
        train: Edits,
        data: DataSource,
        origins: Origins,
        sections: Mapping[str, Edits],
    ) -> None:
        """sections: those of every arm that the base brings."""
        self.preset = preset
        self.base = tuple(base)
        self.origins = origins
        self.data = data
        own = {"tokenizer": data.tokenizer.model_dump(mode="json")} if isinstance(data, TextSource) else {}
        self._written = {**sections, TRAIN: dict(train), DATA: own}
        self._models = dict[str, ModelSpec]()
        """Cache of models by their edits: edits of training alone leave the model unchanged."""

    def build_all(self, base: Arm, edits: Mapping[str, Sequence[Edit]]) -> tuple[list[Arm], list[Problem]]:
        """The base and the arms that can be built, and the problems of the others, duplicates included."""
        arms = {base.identity: base}
        problems: list[Problem] = []
        for name, own in edits.items():
            target = ("arms", name)
            try:
                arm = self.build(name, own, target)
            except StudyError as error:
                problems += error.problems
                continue
            twin = arms.setdefault(arm.identity, arm)
            if twin is not arm:
                reason = "is identical to the base" if twin is base else f"is identical to arm {twin.name}"
                problems.append(self.origins.problem(target, reason, at_key=True))
        return list(arms.values()), problems

    def shared_reason(self, path: Target) -> str | None:
        """Why arms may not differ in a setting; None if they may."""
        if path == (TRAIN, "context"):
            return "losses at different contexts are not comparable: all arms must share one context"
        if path[0] == DATA:
            every = "every arm reads the same text: only data.tokenizer may differ"
            text = None if path[1:2] == ("tokenizer",) else every
            return text if isinstance(self.data, TextSource) else "all arms must have the same task"
        if path[:2] == (TRAIN, "objective"):
            return "losses of different objectives are not comparable: set it in train, for all arms"
        if path[0] == "base":
            return f"paths are relative to the base: write {'.'.join(path[1:]) or 'its settings without base'}"
        if path[0] not in SECTIONS and path[0] in StudySections.model_fields:
            sections = ", ".join(section for section in SECTIONS if section != DATA)
            return f"every arm has the same {path[0]}: arms edit only the model, {sections}, data.tokenizer"
        return None

    def build(self, name: str, edits: Iterable[Edit], target: Target) -> Arm:
        """The arm with these edits of the base. Raises StudyError."""
        own = tuple(edits)
        shared = [(edit, self.shared_reason(edit.path)) for edit in own]
        refused = [self.origins.problem(e.target, why, at_key=True) for e, why in shared if why]
        if refused:
            raise StudyError(refused)
        model_edits = [edit for edit in own if edit.path[0] not in SECTIONS]
        beside = {section: [edit for edit in own if edit.path[0] == section] for section in SECTIONS}
        problems = [*self._model_problems(model_edits, target)]
        problems += [problem for section, edits in beside.items() for problem in self._section_problems(section, edits)]
        if problems:
            raise StudyError(problems)
        written = {section: self._section_data(section, beside[section]) for section in SOURCES}
        given = {section: SOURCES[section].model_validate(data) for section, data in written.items() if data}
        arm = Arm(
            name=name,
            edits={".".join(edit.path): edit.value for edit in own},
            model=self._model([*self.base, *model_edits]),
            train=TrainSpec.model_validate(self._section_data(TRAIN, beside[TRAIN])),
            data=self._data(beside[DATA]),
            target=target,
            own=own,
            given={section: source for section, source in given.items() if source.arm or source.checkpoint},
        )
        added = next((name for name in PARTS if getattr(arm.train, name) is not None), None)
        if added and not any(source.gives_weights for source in arm.given.values()):
            place = next((edit.target for edit in own if edit.path[:2] == (TRAIN, added)), (TRAIN, added))
            reason = (
                f"adds to trained weights, and {name or 'the base'} has no start: set start.arm or start.checkpoint"
            )
            # Without a start there is no such setting, whatever else a search draws: it never draws a start.
            raise StudyError([self.origins.problem(place, reason, kind="unknown_key")])
        # The objective must fit the kind of model.
        try:
            arm.train.objective.check(arm.model)
        except SpecError as error:
            kinds = [edit.target for edit in (*self.base, *arm.own) if edit.path[0] == error.path]
            raise StudyError([self.origins.problem([(TRAIN, "objective"), *kinds][-1], error.reason)]) from None
        return arm

    def tuned(self, arm: Arm, settings: Edits) -> Arm:
        """The arm with the settings that tuning chose. Raises StudyError."""
        chosen = [tuning_edit(path, value) for path, value in settings.items()]
        whole = self.build(arm.name, [*arm.own, *chosen], arm.target)
        return replace(whole, edits=arm.edits, cell=arm.cell, own=arm.own, tuned=dict(settings))

    def _model(self, edits: Sequence[Edit]) -> ModelSpec:
        """The model with these edits. Raises ValidationError and SpecError."""
        key = repr([(edit.path, edit.value) for edit in edits])
        if key not in self._models:
            data: Any = expand(self.preset)
            for each in edits:
                data = merge(data, each.data)
            model = ModelSpec.model_validate(data)
            refuse_impossible(model)
            self._models[key] = model
        return self._models[key]

    def _data(self, edits: Sequence[Edit]) -> DataSource:
        if not edits:
            return self.data
        own = OwnData.model_validate(self._section_data(DATA, edits))
        assert isinstance(self.data, TextSource)  # `shared_reason` refuses data of an arm otherwise
        return self.data.tokenised_by(own.tokenizer)

    def _section_data(self, section: str, edits: Iterable[Edit]) -> Any:
        data: Any = {section: self._written.get(section, {})}
        for edit in edits:
            data = merge(data, edit.data)
        return data[section]

    def _model_errors(self, edits: Sequence[Edit]) -> list[SpecError]:
        try:
            self._model(edits)
        except ValidationError as error:
            return explain(error, ModelSpec)
        except SpecError as error:
            return [error]
        return []

    def _model_problems(self, own: list[Edit], target: Target) -> Iterator[Problem]:
        for error in self._model_errors([*self.base, *own]):
            path, why = tuple(error.path.split(".")), error.reason
            blamed = self._blamed(error, path, own or list(self.base))
            if blamed is None:
                yield self.origins.problem(target, f"{error.path}: {why}", kind=error.kind)
                continue
            inside = path[len(blamed.path) :] if path[: len(blamed.path)] == blamed.path else None
            place = (*blamed.target, *(inside or ()))
            near = blamed.path[: len(path)] == path or inside is not None
            reason = why if near else f"{error.path}: {why}"
            yield self.origins.problem(place, reason, kind=error.kind)

    def _blamed(self, error: SpecError, path: Target, own: list[Edit]) -> Edit | None:
        """The edit whose removal removes the error, else one on its path: the one in the latest layer, then the nearest
        by path. None if there is none."""
        whole = [*self.base, *own] if own[0].target[0] != "base" else own
        causes = [edit for edit in own if not self._fails_without(edit, whole, error)] or [
            edit for edit in own if common_length(edit.path, path) > 0
        ]
        return max(causes, key=lambda e: (e.layer, common_length(e.path, path)), default=None)

    def _fails_without(self, edit: Edit, edits: list[Edit], error: SpecError) -> bool:
        left = [other for other in edits if other is not edit]
        return any((e.path, e.reason) == (error.path, error.reason) for e in self._model_errors(left))

    def _section_problems(self, section: str, edits: list[Edit]) -> Iterator[Problem]:
        if not edits:
            return
        data, spec = self._section_data(section, edits), SECTIONS[section]
        try:
            spec.model_validate(data)
        except ValidationError as error:
            for path, reason, kind in complaints(error, data, spec):
                here = (section, *path)
                found = [e for e in edits if common_length(e.path, here) == min(len(e.path), len(here))]
                target = (*found[-1].target, *path[len(found[-1].path) - 1 :]) if found else _beside(edits[-1], here)
                yield self.origins.problem(target, reason, kind=kind)


def _beside(edit: Edit, path: Target) -> Target:
    """Path in the study at which the arm with this edit would give `path`."""
    root, end = edit.target[: -len(edit.path)], edit.target[-len(edit.path) :]
    return (*root, *path) if end == edit.path else edit.target
