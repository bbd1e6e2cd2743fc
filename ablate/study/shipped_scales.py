"""Scales that come with the tool: settings of every section at one size, which a study refers to and edits.

A study that gives no budget in FLOPs, tokens or seconds outside its own `scales` has all of them. What the study says
wins, except over `smoke`, which everything gives way to but the study's own `scales.smoke`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from ablate.study.layers import Layer
from ablate.study.yamlfile import YamlDocument, parse_yaml
from zoo.edits import expand

ORDER = ("smoke", "cpu", "cpu-long", "gpu-quick", "gpu")
"""From the smallest to the largest."""
ABSOLUTE = ("flops", "tokens", "seconds")
"""Budgets that belong to one size."""
WHOLE = ("preset", "checkpoint")
"""Settings of a base that is a model by itself: no scale resizes it."""


@dataclass(frozen=True)
class ShippedScale:
    """A scale as it ships. over: whether it is laid over a study, not under it."""

    name: str
    about: str
    over: bool
    text: str
    layer: Layer

    def beside(self, layers: Iterable[Layer]) -> Layer:
        """Its layer for a study with these: without a size where their base has one."""
        bases = (layer.nested.get("base") for layer in layers)
        sized = any(isinstance(base, Mapping) and base.get(key) is not None for base in bases for key in WHOLE)
        return replace(self.layer, without=self.layer.without | {"base"}) if sized else self.layer


@cache
def shipped_scales() -> Mapping[str, ShippedScale]:
    """Every scale that ships, by name, in order of size."""
    return {name: _read(name) for name in ORDER}


def offered(document: YamlDocument) -> Mapping[str, ShippedScale]:
    """The shipped scales that a study may be run at; none where it has a budget of one size for all."""
    data: Any = document.data
    written = expand(data).get("budget") if isinstance(data, Mapping) else None
    complete = isinstance(written, Mapping) and any(written.get(kind) is not None for kind in ABSOLUTE)
    return {} if complete else shipped_scales()


def _read(name: str) -> ShippedScale:
    file = resources.files("ablate").joinpath("scales", f"{name}.yaml")
    text = file.read_text(encoding="utf-8")
    document = parse_yaml(text, f"ablate/scales/{name}.yaml")
    layer = Layer(document, without=frozenset({"about", "over"}), shipped=True)
    return ShippedScale(name, document.data["about"], bool(document.data.get("over")), text, layer)
