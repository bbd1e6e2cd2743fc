"""Reading a study: the file, one of its scales and `--set` edits → typed sections and resolved arms.

Every mistake is a `StudyError` whose lines say where the user wrote it and why it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ablate.arms import TRAIN, Arm, ArmBuilder, edits_in
from ablate.data.sources import DataSource
from ablate.explain import complaints
from ablate.grid import cells
from ablate.layers import Layer, Origins, Target, setting_layer
from ablate.problems import Problem, StudyError
from ablate.sections import NAME, Budget, StudySections
from ablate.training.probes import ProbeSpec, short
from ablate.training.spec import TrainSpec
from ablate.yamlfile import Document, read_yaml
from evals.spec import EvalSpec, MeasureSpec
from zoo.edits import flatten, merge
from zoo.errors import SpecError, did_you_mean
from zoo.presets import preset

__all__ = ["Arm", "Problem", "Study", "StudyError", "default_scale", "load_study"]

DEFAULT_SCALES = ("cpu", "gpu")
REPLACED = ("budget", "grid", "seeds")
"""Sections of which a later layer keeps nothing: a scale that budgets tokens has no budget in FLOPs."""


@dataclass(frozen=True)
class Study:
    """A question, ready to be planned. The first arm is the baseline: the base model as it is."""

    name: str
    path: Path
    text: str
    scale: str
    sections: StudySections
    arms: tuple[Arm, ...]
    vocabulary_given: bool
    """Whether the study says the model's vocabulary; otherwise it is the tokenizer's."""
    origins: Origins = field(repr=False, compare=False)

    @property
    def question(self) -> str:
        return self.sections.question

    @property
    def source(self) -> str | None:
        return self.sections.source

    @property
    def baseline(self) -> str:
        return self.sections.baseline

    @property
    def budget(self) -> Budget:
        return self.sections.budget

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.sections.seeds

    @property
    def data(self) -> DataSource:
        return self.sections.data

    @property
    def train(self) -> TrainSpec:
        return self.sections.train

    @property
    def measure(self) -> MeasureSpec | None:
        return self.sections.measure

    @property
    def evals(self) -> EvalSpec | None:
        return self.sections.evals

    @property
    def probes(self) -> ProbeSpec | None:
        return self.sections.probes

    @property
    def folder(self) -> Path:
        """What relative paths in the study start from."""
        return self.path.resolve().parent

    def error(self, setting: str, reason: str) -> StudyError:
        """An error at a setting, by its dotted path (`"budget.flops"`)."""
        return StudyError([self.origins.problem(tuple(setting.split(".")), reason)])


def default_scale() -> str:
    """`gpu` where torch finds one, else `cpu`."""
    import torch  # noqa: PLC0415 (slow to load, and a given scale does not need it)

    return "gpu" if torch.cuda.is_available() else "cpu"


def load_study(path: str | Path, scale: str | None = None, sets: Sequence[str] = ()) -> Study:
    """The study in a file, at a scale (`None`: `default_scale()`), with `key=value` edits.

    Raises:
        StudyError: with every problem that could be found in one pass.
    """
    path = Path(path)
    document = read_yaml(path)
    if not isinstance(document.data, Mapping):
        reason = "the file is empty" if document.data is None else "expected a map, with a question, a base and arms"
        raise StudyError([Problem(document.values[()], "", reason)])
    return _Reader(path, document, scale, sets).study()


class _Reader:
    """One pass over the layers of a study, which collects problems until nothing more can be checked."""

    def __init__(self, path: Path, document: Document, scale: str | None, sets: Sequence[str]) -> None:
        self.path = path
        self.document = document
        self.scale = scale or default_scale()
        self.origins = Origins(document.values[()])
        self.problems = list(_scale_problems(document, scale))
        self.layers = [Layer(document, without=frozenset({"scales"}))]
        scales = document.data.get("scales")
        if isinstance(scales, Mapping) and isinstance(scales.get(self.scale), Mapping):
            self.layers.append(Layer(document, ("scales", self.scale)))
        self.layers += [setting_layer(text) for text in sets]
        for layer in self.layers:
            self.problems += self.origins.add(layer)

    def study(self) -> Study:
        tree = self._tree()
        self.problems += self._name_problems(tree)
        sections = self._sections(tree)
        arms = self._arms(tree, sections)
        if self.problems or sections is None:
            raise StudyError(self.problems)
        return Study(
            name=self.path.stem,
            path=self.path,
            text=self.path.read_text(encoding="utf-8"),
            scale=self.scale,
            sections=sections,
            arms=tuple(arms),
            vocabulary_given="vocab_size" in tree["base"],
            origins=self.origins,
        )

    def _tree(self) -> dict[str, Any]:
        """The sections of all layers together, nested."""
        tree: dict[str, Any] = {}
        for layer in self.layers:
            for key, value in layer.nested.items():
                old = _source_changed(tree.get(key), value) if key == "data" else tree.get(key)
                if key == "probes":
                    old, value = short(old), short(value)  # noqa: PLW2901 (so that edits by path find its parts)
                tree[key] = value if key in REPLACED else merge(old, value)
        if isinstance(tree.get("grid"), Mapping):
            tree["grid"] = dict(flatten(tree["grid"]))
        return tree

    def _sections(self, tree: Mapping[str, Any]) -> StudySections | None:
        try:
            return StudySections.model_validate(tree)
        except ValidationError as error:
            for path, reason in complaints(error, tree, StudySections.model_json_schema()):
                target = tuple(key for part in path for key in part.split("."))
                at_key = reason.startswith("unknown key")
                self.problems.append(self.origins.problem(target, reason, at_key=at_key))
        return None

    def _name_problems(self, tree: Mapping[str, Any]) -> Iterator[Problem]:
        written = self.document.data.get("arms")
        names = list(written) if isinstance(written, Mapping) else []
        for name in names:
            if not NAME.fullmatch(name):
                origin = self.document.keys["arms", name]
                reason = "a name has letters, digits, '_', '+' and '-' (at most 40), and starts with one of the former"
                yield Problem(origin, f"arms.{name}", reason)
            if name == tree.get("baseline", "base"):
                reason = f"'{name}' is the baseline, which is the base as it is: give this arm another name"
                yield self.origins.problem(("arms", name), reason, at_key=True)
        for layer in self.layers[1:]:
            arms = layer.nested.get("arms")
            for name in arms if isinstance(arms, Mapping) else ():
                if name not in self.layers[0].nested.get("arms", {}):
                    reason = "there is no such arm" + did_you_mean(name, names)
                    yield self.origins.problem(("arms", name), reason, at_key=True)

    def _arms(self, tree: Mapping[str, Any], sections: StudySections | None) -> list[Arm]:
        builder = self._builder(tree)
        arms = tree.get("arms") or {}
        if builder is None or not isinstance(arms, Mapping):
            return []
        try:
            base = builder.build(tree.get("baseline", "base"), (), ("base",))
        except StudyError as error:
            self.problems += error.problems
            return []
        edits = {name: self._edits(("arms", name)) for name, written in arms.items() if isinstance(written, Mapping)}
        plain, problems = builder.build_all(base, edits)
        self.problems += problems
        if not arms and not tree.get("grid") and not self.problems:
            self.problems.append(self.origins.problem(("arms",), "there are no arms: nothing is compared"))
        if self.problems or sections is None or not sections.grid:
            return plain
        crossed, problems = cells(builder, plain, edits, sections.grid)
        self.problems += problems
        return crossed

    def _builder(self, tree: Mapping[str, Any]) -> ArmBuilder | None:
        base = tree.get("base")
        if not isinstance(base, Mapping):
            return None  # _sections has said so
        name = base.get("preset")
        if not isinstance(name, str):
            reason = "is missing" if name is None else f"expected the name of a preset, not {name!r}"
            self.problems.append(self.origins.problem(("base", "preset"), f"{reason} (see `ablate zoo`)"))
            return None
        try:
            model = preset(name).model
        except SpecError as error:
            self.problems.append(self.origins.problem(("base", "preset"), error.reason))
            return None
        edits = [edit for edit in self._edits(("base",)) if edit.path != ("preset",)]
        return ArmBuilder(model, edits, self._valid_train(tree), self.origins)

    def _valid_train(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """The training settings; the defaults where they have problems of their own."""
        train = tree.get(TRAIN, {})
        try:
            TypeAdapter(TrainSpec).validate_python(train)
        except ValidationError:
            return {}  # _sections reports it
        return dict(train)

    def _edits(self, root: Target) -> list[Any]:
        """The edits that all layers make below a setting, in order."""
        found = []
        for number, layer in enumerate(self.layers):
            here: Any = layer.nested
            for key in root:
                here = here.get(key) if isinstance(here, Mapping) else None
            if isinstance(here, Mapping):
                found += list(edits_in(here, root, number))
        return found


def _source_changed(old: Any, new: Any) -> Any:
    """What is left of the settings of data when `new` names another source: those that all sources have."""
    name = new.get("source") if isinstance(new, Mapping) else new
    if not isinstance(old, Mapping) or name in (None, old.get("source")):
        return old
    return {key: value for key, value in old.items() if key in DataSource.model_fields and key != "source"}


def _scale_problems(document: Document, scale: str | None) -> Iterator[Problem]:
    """What is wrong with `scales` itself, the scales that are not asked for included."""
    scales = document.data.get("scales")
    if scales is not None and not isinstance(scales, Mapping):
        yield Problem(document.values[("scales",)], "scales", "expected a map of scales, each with edits of the study")
        return
    for name, edits in (scales or {}).items():
        place = ("scales", name)
        if not NAME.fullmatch(name):
            yield Problem(document.keys[place], f"scales.{name}", "a name has letters, digits, '_', '+' and '-'")
        if not isinstance(edits, Mapping):
            yield Problem(document.values[place], f"scales.{name}", "expected a map of edits; {} for none")
            continue
        for key in edits:
            head = key.partition(".")[0]
            if head not in StudySections.model_fields:
                reason = "unknown key" + did_you_mean(head, StudySections.model_fields)
                yield Problem(document.keys[*place, key], f"scales.{name}.{key}", reason)
    known = list(dict.fromkeys([*(scales or {}), *DEFAULT_SCALES]))
    if scale is not None and scale not in known:
        reason = f"unknown scale '{scale}'" + (did_you_mean(scale, known) or f": one of {', '.join(known)}")
        yield Problem(document.keys.get(("scales",), document.values[()]), "scales", reason)
