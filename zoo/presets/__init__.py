"""Published models as data: one YAML file each, with its citation.

A file has one size in full, and others, if any, as edits of it. Its keys are those of `Preset`; values come from the
source unless a comment or `assumed` says otherwise.
"""

from __future__ import annotations

import copy
import re
from functools import cache
from importlib import resources
from typing import Annotated, Any

import yaml
from pydantic import Field, PositiveFloat, PositiveInt

from zoo.errors import SpecError, did_you_mean
from zoo.settings.axis import Spec
from zoo.settings.edits import SpecJson, merge
from zoo.settings.identity import Origin
from zoo.spec import ModelSpec, parse


class Size(Spec):
    """Another size of a published model: edits of its spec by path, none for the file's own size."""

    edits: Annotated[SpecJson, Field(default_factory=dict)]
    """Edits of the file's spec by path that give this size."""
    published_parameters: PositiveFloat | None = None
    """Parameter count as the source states it; null where none is published."""
    published_active_parameters: PositiveFloat | None = None
    """Parameters that one token uses, for mixtures of experts."""
    note: str | None = None
    """Reason why the count differs from the published one."""


class Preset(Spec):
    """A published model."""

    name: str
    """Name of the preset: that of its file."""
    year: PositiveInt
    """Year of the model's publication."""
    source: str
    """Paper, model card or config that the spec is taken from."""
    parts: Annotated[SpecJson, Field(alias="model")]
    """The spec at full size as plain data, or its known part."""
    published_parameters: PositiveFloat | None
    """Parameter count as the source states it; null where none is published."""
    published_active_parameters: PositiveFloat | None = None
    """Parameters that one token uses, for mixtures of experts."""
    assumed: Annotated[list[str], Field(default_factory=list)]
    """Paths of the model whose values are not public."""
    note: str | None = None
    """Reason why the count differs from the published one, or why the model cannot be built."""
    buildable: bool = True
    """Whether enough is public to build the model."""
    sizes: dict[str, Size] = Field(default={})
    """The family's sizes, the file's own among them: size 70b of llama3 is the preset llama3-70b."""

    @property
    def model(self) -> SpecJson:
        """The spec at full size as plain data. Raises SpecError if too little is public."""
        if not self.buildable:
            raise SpecError("preset", f"'{self.name}' cannot be built: {self.note}")
        return self.parts

    @property
    def spec(self) -> ModelSpec:
        """The spec at full size. Raises SpecError if too little is public."""
        return parse(self.model)

    def sized(self, name: str) -> Preset:
        """The preset at one of its `sizes`."""
        size = self.sizes[name]
        if not size.edits:
            return self.model_copy(update={"name": f"{self.name}-{name}"})
        own = size.model_dump(exclude={"edits"})
        return self.model_copy(update={"name": f"{self.name}-{name}", "parts": merge(self.parts, size.edits), **own})


def names() -> list[str]:
    """Names of the presets' files, in alphabetical order."""
    files = resources.files(__name__).iterdir()
    return sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml"))


def sized_names() -> list[str]:
    """Names of all sizes of presets that have several, such as llama3-70b."""
    return [f"{name}-{size}" for name in names() for size in _read(name).sizes]


def preset(name: str) -> Preset:
    """A preset by name (`llama3`), or one of its sizes (`llama3-70b`). Raises SpecError with the nearest name."""
    family, _, size = name.partition("-")
    if family in names():
        found = _read(family)
        if size in found.sizes:
            return found.sized(size)
        if name == family:
            return found
    known = [*names(), *sized_names()]
    raise SpecError(
        "preset", f"unknown preset '{name}'" + (did_you_mean(name, known) or f": one of {', '.join(known)}")
    )


def _read(name: str) -> Preset:
    return Preset(name=name, **copy.deepcopy(_content(name)))


@cache
def _content(name: str) -> Any:
    """Content of a preset's file, cached: parsing it takes ten times as long as building the model."""
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, _loader())


@cache
def _loader() -> Any:
    """PyYAML's loader, in C if built with libyaml: ruamel.yaml takes a second for all presets. In its YAML 1.1, `1e-5`
    is a string; here it is a number, as in studies."""
    loader: Any = type("Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
    exponential = re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
    loader.add_implicit_resolver("tag:yaml.org,2002:float", exponential, list("-+0123456789"))
    return loader


def load(name: str, **edits: Any) -> ModelSpec:
    """A preset with edits by path: `load("llama3", **{"d_model": 256, "block.mixer.kv_heads": 2})`."""
    model = preset(name).model
    return parse(merge(model, edits)).from_preset(Origin(name, model))
