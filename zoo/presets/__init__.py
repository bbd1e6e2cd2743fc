"""Published models as data: one YAML file each, with its citation.

A file's keys are those of `Preset`; values come from the source unless a comment or `assumed` says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt
from ruamel.yaml import YAML

from zoo.axis import Spec
from zoo.edits import merge
from zoo.errors import SpecError, did_you_mean
from zoo.shrink import shrink
from zoo.spec import ModelSpec, parse


class Preset(Spec):
    """A published model."""

    name: str
    year: PositiveInt
    source: str
    parts: Annotated[dict[str, Any], Field(alias="model")]
    """The spec at full size as plain data, or what is known of it."""
    published_parameters: PositiveFloat | None
    """As the source states them; null where there is no published count."""
    published_active_parameters: PositiveFloat | None = None
    """Those that one token uses, for mixtures of experts."""
    assumed: Annotated[list[str], Field(default_factory=list)]
    """Paths of the model whose values are not public."""
    stand_ins: Annotated[list[str], Field(default_factory=list)]
    """Paths of the model where something near stands in for what the published model has; the note says for what."""
    note: str | None = None
    """Why the count or a part differs from what is published, or why the model cannot be built."""
    buildable: bool = True
    """Whether enough is public to build it."""

    @property
    def model(self) -> dict[str, Any]:
        """The spec at full size as plain data. Raises SpecError where too little is public."""
        if not self.buildable:
            raise SpecError("preset", f"'{self.name}' cannot be built: {self.note}")
        return self.parts

    @property
    def spec(self) -> ModelSpec:
        """The spec at full size. Raises SpecError where too little is public."""
        return parse(self.model)


def names() -> list[str]:
    """Every preset, in alphabetical order."""
    files = resources.files(__name__).iterdir()
    return sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml"))


def preset(name: str) -> Preset:
    """A preset by name. Raises SpecError with the nearest name."""
    return Preset(name=name, **YAML(typ="safe", pure=True).load(written(name)))


def written(name: str) -> str:
    """A preset's file, whose comments say where each value is from. Raises SpecError with the nearest names."""
    if name not in names():
        raise SpecError(
            "preset", f"unknown preset '{name}'" + (nearest(name, names()) or f": one of {', '.join(names())}")
        )
    return resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def nearest(name: str, known: Sequence[str]) -> str:
    """`" (did you mean …?)"`: the names that begin with this one (`gemma`: 'gemma2' or 'gemma3'), or one like it."""
    plain = _plain(name)
    begun = [f"'{other}'" for other in known if len(plain) > 2 and _plain(other).startswith(plain)]
    return f" (did you mean {' or '.join(begun[:4])}?)" if begun else did_you_mean(name.lower(), known)


def _plain(name: str) -> str:
    """`phi3`, of `Phi-3`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def load(name: str, **edits: Any) -> ModelSpec:
    """A preset with edits by path: `load("llama3", **{"d_model": 256, "block.mixer.kv_heads": 2})`."""
    return parse(merge(preset(name).model, edits))


def shrunk(name: str) -> ModelSpec:
    """A preset at a size that trains in seconds: the same parts in the same order, fewer and narrower."""
    return shrink(load(name))
