"""The scales of a study, shipped or its own, and the layers that apply at each.

A shipped scale has settings of every section at one size, which a study refers to and edits. A study without a budget
in FLOPs, tokens or seconds outside its own `scales` can run at all of them. The study's settings override the scale's,
except for `smoke`, which overrides all but the base and the study's own `scales.smoke`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from ablate.data.sources import TextSource
from ablate.study.complaints import Problem
from ablate.study.layers import Layer
from ablate.study.sections import ABSOLUTE, StudySections
from ablate.study.sources import base_kinds
from ablate.study.written import Written
from ablate.study.yamlfile import Keys, YamlDocument, parse_yaml
from evals.spec import EvalSpec
from store.documents.study import SCALES
from store.extensions import modules_of
from store.paths import NAME
from zoo.errors import did_you_mean
from zoo.settings.axis import variants
from zoo.settings.edits import expand

NAMING = "a name must be letters, digits, '_', '+' and '-', at most 40 characters, beginning with a letter or digit"
LACKED = {"base.preset": "small", "budget": "{tokens: 1e8}"}
"""Settings that a scale needs if it is not based on a shipped one, with example values."""
FIRST_JUDGED = "cpu"
"""The smallest shipped scale with verdicts."""


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
        sized = any(base.get(key) is not None for base in bases if isinstance(base, Mapping) for key in base_kinds())
        named = [data.get("source") for layer in own if isinstance(data := layer.nested.get("data"), Mapping)]
        source = next((each for each in reversed(named) if each is not None), None)
        known = variants("ablate.data.sources", "source")
        made = isinstance(source, str) and source in known and not issubclass(known[source], TextSource)
        left = self.layer.without | ({"base"} if sized else set()) | ({"evals"} if made else set())
        if not self.over:
            under = [self.layer, *([rung] if rung and rung.shipped else [])]
            return [replace(layer, without=left) for layer in under], []
        rest = set(self.layer.written) - {"base"}
        return [replace(self.layer, without=left | rest)], [replace(self.layer, without=left | {"base"})]


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


@dataclass(frozen=True)
class Rung:
    """A rung of a ladder; without a name, the whole study."""

    name: str | None = None
    edits: Layer | None = None
    share: float | None = None
    """Its share of the budget, if it gives nothing else."""


@dataclass(frozen=True)
class Layers:
    """The layers of a study at one scale and, if it has a ladder, one rung. Later layers win.

    `share` is the rung's share of the budget, if the rung gives nothing else.
    """

    written: Written
    scale: str
    rung: str | None
    layers: tuple[Layer, ...]
    share: float | None = None
    shipped: ShippedScale | None = None
    """The shipped scale among them."""

    @property
    def own(self) -> tuple[Layer, ...]:
        """The study's own layers, without those of a shipped scale."""
        return tuple(layer for layer in self.layers if not layer.shipped)


@dataclass(frozen=True)
class Rungs:
    """A study at one scale: its layers at every rung, the compared one last, and problems of scales and ladder."""

    every: tuple[Layers, ...]
    problems: tuple[Problem, ...]


def rungs_by_scale(written: Written, scale: str) -> list[Rungs]:
    """The study at the requested scale with its `--set` edits, then at each of its other scales without them.

    Mistakes in other scales are better found now than on the machines that these are for.
    """
    document = written.document
    problems, lacking = tuple(_scale_problems(document, scale)), _lacking(document)
    if scale not in scale_names(document) or scale in lacking:
        return [Rungs((), problems)]
    found = _rungs(written, scale)
    asked = replace(found, problems=(*problems, *found.problems))
    own = [name for name, edits in _own(document).items() if isinstance(edits, Mapping)]
    others = dict.fromkeys(name for name in own if name != scale and name not in {*_misspelt(document), *lacking})
    shipped = offered(document).get(scale)
    if shipped and shipped.over and not others:  # else the settings that it overrides would go unchecked
        others = {FIRST_JUDGED: None}
    return [asked, *(_rungs(replace(written, sets=()), other) for other in others)]


def _rungs(written: Written, scale: str) -> Rungs:
    document = written.document
    places = [*reversed(written.sets), Layer(document, ("scales", scale)), Layer(document)]
    places += [shipped.layer] if (shipped := offered(document).get(scale)) else []
    found = [wing.rungs(places) for wing in modules_of(__name__)]
    listed = [rung for rungs, _ in found for rung in rungs] or [Rung()]
    every = tuple(_layers(written, scale, rung) for rung in listed)
    return Rungs(every, tuple(problem for _, problems in found for problem in problems))


def _layers(written: Written, scale: str, rung: Rung) -> Layers:
    document = written.document
    file, later = Layer(document, without=frozenset({"scales"})), list[Layer]()
    own = ("scales", scale)
    later += [Layer(document, own)] if isinstance(at(document, own), Mapping) else []
    later += [rung.edits] if rung.edits and not rung.edits.shipped else []
    later += written.sets
    shipped = offered(document).get(scale)
    under, over = shipped.around([file, *later], rung.edits) if shipped else ([], [])
    return Layers(written, scale, rung.name, (*under, file, *over, *later), rung.share, shipped)


def at(document: YamlDocument, root: Keys) -> Any:
    """The value at a path; None if there is none."""
    here = document.data
    for key in root:
        here = here.get(key) if isinstance(here, Mapping) else None
    return here


def _scale_problems(document: YamlDocument, scale: str) -> Iterator[Problem]:
    """Problems of `scales` itself, including scales that were not requested."""
    scales = document.data.get("scales")
    if scales is not None and not isinstance(scales, Mapping):
        yield Problem(document.values[("scales",)], "scales", "must be a map of scales, each with edits of the study")
        return
    for name, edits in (scales or {}).items():
        place = ("scales", name)
        if not NAME.fullmatch(name):
            yield Problem(document.keys[place], f"scales.{name}", NAMING)
        if not isinstance(edits, Mapping):
            yield Problem(document.values[place], f"scales.{name}", "must be a map of edits; {} for none")
            continue
        for key in edits:
            head = key.partition(".")[0]
            if head not in StudySections.model_fields:
                reason = "unknown key" + did_you_mean(head, StudySections.model_fields)
                yield Problem(document.keys[*place, key], f"scales.{name}.{key}", reason, "unknown_key")
        if hint := _misspelt(document).get(name):
            reason = f"unknown scale{hint}; a new scale needs a budget"
            yield Problem(document.keys[place], f"scales.{name}", reason, "unknown_key")
        if lacks := _lacking(document).get(name):
            example = ", ".join(f"{path}: {LACKED[path]}" for path in lacks)
            ship = f"which only shipped scales ({', '.join(SCALES)}) supply"
            reason = f"needs {' and '.join(lacks)}, {ship}: add `{example}`"
            yield Problem(document.keys[place], f"scales.{name}", reason)
    known = scale_names(document)
    if scale not in known:
        reason = f"unknown scale '{scale}'" + (did_you_mean(scale, known) or f": one of {', '.join(known)}")
        if scale in SCALES:
            reason += ". Shipped scales need a study without a top-level budget in flops, tokens or seconds"
        yield Problem(document.keys.get(("scales",), document.values[()]), "scales", reason)


def scale_names(document: YamlDocument) -> list[str]:
    """Names of the scales that a study may run at. Without shipped scales, `cpu` and `gpu` default to its settings."""
    own = (name for name in _own(document) if name not in _misspelt(document))
    return list(dict.fromkeys([*(offered(document) or ("cpu", "gpu")), *own]))


def _misspelt(document: YamlDocument) -> Mapping[str, str]:
    """Hints, by name, for scales that resemble a shipped one by name and have no budget of their own."""
    budget = expand(document.data).get("budget")
    hints = {
        name: did_you_mean(name, SCALES)
        for name, edits in _own(document).items()
        if name not in SCALES and not (isinstance(edits, Mapping) and expand(edits).get("budget"))
    }
    return {name: hint for name, hint in hints.items() if hint} if offered(document) and not budget else {}


def _lacking(document: YamlDocument) -> Mapping[str, Sequence[str]]:
    """Required settings that neither the study nor a scale of its own has, by scale; scales based on a shipped one have
    them from there."""
    if not offered(document):
        return {}
    study = expand(document.data)
    found = dict[str, Sequence[str]]()
    for name, edits in _own(document).items():
        if not isinstance(edits, Mapping) or name in SCALES or name in _misspelt(document):
            continue
        layers = study, expand(edits)
        bases = [base for each in layers if isinstance(base := each.get("base"), Mapping)]
        is_odd = any(each.get("base") is not None and not isinstance(each["base"], Mapping) for each in layers)
        has_base = is_odd or any(base.get(key) is not None for base in bases for key in base_kinds())
        has = {"base.preset": has_base, "budget": any(each.get("budget") for each in layers)}
        lacks = [path for path in LACKED if not has[path]]
        found |= {name: lacks} if lacks else {}
    return found


def _own(document: YamlDocument) -> Mapping[str, object]:
    """Section `scales` of the study; empty if it is absent or invalid."""
    scales = document.data.get("scales")
    return {str(name): edits for name, edits in scales.items()} if isinstance(scales, Mapping) else {}
