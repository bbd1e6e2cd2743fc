"""Scales that come with the tool: settings of every section at one size, which a study refers to and edits.

A study without a budget in FLOPs, tokens or seconds outside its own `scales` can run at all of them. The study's
settings override the scale's, except for `smoke`, which overrides all but the base and the study's own `scales.smoke`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from ablate.data.sources import TextSource
from ablate.study.budget_spec import ABSOLUTE
from ablate.study.layers import Layer
from ablate.study.sources import BASES
from ablate.study.yamlfile import YamlDocument, parse_yaml
from evals.spec import EvalSpec
from store.documents.study import SCALES
from zoo.settings.axis import variants
from zoo.settings.edits import expand


@dataclass(frozen=True)
class ShippedScale:
    """A scale as shipped. over: whether all but its base overrides a study's settings, rather than the reverse."""

    name: str
    about: str
    over: bool
    text: str
    layer: Layer

    def around(self, own: Sequence[Layer], rung: Layer | None = None) -> tuple[list[Layer], list[Layer]]:
        """Its layers before and after a study's own, without a size if the base has one, and without evaluations if the
        data are synthetic. rung: edits of the rung, which belong to these layers if the ladder is the scale's."""
        bases = (layer.nested.get("base") for layer in own)
        sized = any(base.get(key) is not None for base in bases if isinstance(base, Mapping) for key in BASES)
        left = self.layer.without | ({"base"} if sized else set()) | ({"evals"} if _is_synthetic(own) else set())
        if not self.over:
            under = [self.layer, *([rung] if rung and rung.shipped else [])]
            return [replace(layer, without=left) for layer in under], []
        rest = set(self.layer.written) - {"base"}
        return [replace(self.layer, without=left | rest)], [replace(self.layer, without=left | {"base"})]


def _is_synthetic(own: Sequence[Layer]) -> bool:
    """Whether the study's data are a synthetic task."""
    named = [data.get("source") for layer in own if isinstance(data := layer.nested.get("data"), Mapping)]
    source = next((each for each in reversed(named) if each is not None), None)
    known = variants("ablate.data.sources", "source")
    return isinstance(source, str) and source in known and not issubclass(known[source], TextSource)


@cache
def shipped_scales() -> Mapping[str, ShippedScale]:
    """Every shipped scale, by name, in order of size."""
    return {name: _read(name) for name in SCALES}


def offered(document: YamlDocument) -> Mapping[str, ShippedScale]:
    """The shipped scales that a study may run at; none if it has an absolute budget outside its own `scales`."""
    data: Any = document.data
    written = expand(data).get("budget") if isinstance(data, Mapping) else None
    complete = isinstance(written, Mapping) and any(written.get(kind) is not None for kind in ABSOLUTE)
    return {} if complete else shipped_scales()


def _read(name: str) -> ShippedScale:
    file = resources.files("ablate").joinpath("scales", f"{name}.yaml")
    text = file.read_text(encoding="utf-8")
    document = parse_yaml(text, f"ablate/scales/{name}.yaml")
    evals = document.data.get("evals", {})
    for key in evals.keys() - EvalSpec.model_fields.keys():  # of an evaluation that is not installed
        del evals[key]
    empty = set() if evals else {"evals"}
    layer = Layer(document, without=frozenset({"about", "over"} | empty), shipped=True)
    return ShippedScale(name, document.data["about"], bool(document.data.get("over")), text, layer)
