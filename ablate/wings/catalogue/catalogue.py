"""Everything with a name: variants of the zoo, parts, objectives, optimizers, data sources, evaluations, decoding."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, get_args, get_origin

from ablate.study.arms import SOURCES
from ablate.training.spec import PARTS, TrainSpec
from ablate.wings.catalogue.model_table import Row
from ablate.wings.catalogue.published import preset_row
from ablate.wings.plugins.plugin_files import check_groups
from evals.evaluations import evaluations
from zoo.block_spec import BlockSpec
from zoo.decode import BeamSearch, Sampling, Speculation, beam_search, generate, lookahead, speculate
from zoo.presets import names, preset
from zoo.settings.axis import Spec, Variant, variants
from zoo.settings.descriptions import descriptions
from zoo.settings.registry import plugins
from zoo.spec import ModelSpec

PAPER = re.compile(r"arXiv:[0-9]{4}\.[0-9]{4,5}|https?://[^\s)]+[^\s).,]")
WHOLES: dict[str, type[Spec]] = {"model": ModelSpec, "block": BlockSpec}
"""Specs that are composed of variants and parts."""
OF_ARMS: dict[str, type[Spec]] = {"train": TrainSpec, **PARTS, **SOURCES}
"""Sections of an arm beside its model."""
Catalogue: TypeAlias = Mapping[str, Mapping[str, tuple[Any, type[Spec]]]]
"""The documented object and the spec with the settings, by axis and name."""
DECODING: dict[str, tuple[Callable[..., Any], type[Spec]]] = {
    "beam_search": (beam_search, BeamSearch),
    "generate": (generate, Sampling),
    "lookahead": (lookahead, Sampling),
    "speculate": (speculate, Speculation),
}
"""Decoding functions by name, each with the spec of its settings."""
OTHERS = {
    "ablate.training.objectives": "kind",
    "ablate.training.optimizers": "kind",
    "ablate.data.sources": "source",
    "ablate.data.tokenizers": "kind",
}
"""Other choices of a study, with the field that names the choice."""
TAGS = {"kind", *OTHERS.values()}
"""Fields that name a choice, and are no settings."""


def catalogued() -> dict[str, Mapping[str, tuple[Any, type[Spec]]]]:
    """The catalogue: axes of the zoo, parts, choices outside the zoo (`OTHERS`), evaluations and decoding."""
    others = {package.rpartition(".")[2]: variants(package, tag) for package, tag in OTHERS.items()}
    # Parts: fields of a model or block whose type is a spec, but neither a variant nor a whole.
    fields = {name: field for whole in WHOLES.values() for name, field in whole.model_fields.items()}
    classes: dict[str, Mapping[str, type[Spec]]] = {
        **axes(),
        "parts": {
            name: part
            for name, field in sorted(fields.items())
            for part in (field.annotation, *get_args(field.annotation))
            if isinstance(part, type) and issubclass(part, Spec) and not issubclass(part, (Variant, *WHOLES.values()))
        },
        **others,
        "evaluations": evaluations(),
    }
    documented = {axis: {name: (cls, cls) for name, cls in of.items()} for axis, of in classes.items()}
    return {**documented, "decoding": DECODING}


def whole_catalogue() -> WholeCatalogue:
    """Every variant and preset, as `ablate zoo --json` prints them. `catalogue.json` beside this file is this document
    of an installation without plug-ins, so that listing it loads no torch; after a change,

        python -m ablate.wings.catalogue.catalogue > ablate/wings/catalogue/catalogue.json
    """
    check_groups()
    known = {axis: [_in_full(name, *of) for name, of in each.items()] for axis, each in catalogued().items()}
    return {"variants": known, "presets": [preset_row(preset(name)) for name in names()]}


def axes() -> dict[str, dict[str, type[Spec]]]:
    """Every axis of the zoo with its variants: the packages of `zoo`, nested ones included (`positions.scalings`), that
    define a base class for variants."""
    return {package.removeprefix("zoo."): variants(package) for package in _axes_below("zoo")}


def _axes_below(package: str) -> Iterator[str]:
    inside = importlib.import_module(package).__path__
    for name in (f"{package}.{m.name}" for m in pkgutil.iter_modules(inside) if m.ispkg):
        values = vars(importlib.import_module(name)).values()
        if any(isinstance(v, type) and issubclass(v, Variant) and v.__module__ == name for v in values):
            yield name
            yield from _axes_below(name)


class Setting(TypedDict):
    default: Any
    """As plain data; `required` for a setting without one."""
    doc: str


class DocumentedPart(TypedDict):
    name: str
    doc: str
    """The first paragraph."""
    paper: str | None
    plugin: NotRequired[str]


class CataloguedPart(DocumentedPart):
    documentation: str
    settings: dict[str, Setting]


class WholeCatalogue(TypedDict):
    variants: dict[str, list[CataloguedPart]]
    """By axis."""
    presets: list[Row]


def entry(name: str, documented: Any) -> DocumentedPart:
    """A name with the first paragraph of its documentation, the first paper that this cites, and the plug-in that it
    comes from, if any."""
    text = inspect.getdoc(documented) or ""
    paper = PAPER.search(text)
    found = DocumentedPart(
        name=name, doc=" ".join(text.partition("\n\n")[0].split()), paper=paper.group() if paper else None
    )
    origin = next((str(each) for each in plugins() if each.module == documented.__module__), None)
    return {**found, "plugin": origin} if origin else found


def _in_full(name: str, documented: Any, cls: type[Spec]) -> CataloguedPart:
    docs = descriptions(cls)
    settings = {key: Setting(default=value, doc=docs.get(key, "")) for key, value in settings_of(cls).items()}
    return {**entry(name, documented), "documentation": inspect.getdoc(documented) or "", "settings": settings}


def settings_of(cls: type[Spec]) -> dict[str, object]:
    """Default values by setting, as plain data; `required` for a setting without one."""
    fields = {name: field for name, field in cls.model_fields.items() if name not in TAGS}
    plain = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    plain |= {name: value.model_dump(mode="json") for name, value in plain.items() if isinstance(value, Spec)}
    return {name: "required" if fields[name].is_required() else value for name, value in plain.items()}


def by_heading(cls: type[Spec]) -> dict[str, list[str]]:
    """Names of the settings by heading; under `""` all of a spec without headings."""
    known = settings_of(cls)
    headings = cls.headings if issubclass(cls, Variant) else {}
    found = {heading: [name for name in under if name in known] for heading, under in headings.items()}
    placed = {name for under in found.values() for name in under}
    found["its own" if headings else ""] = [name for name in known if name not in placed]
    return {heading: under for heading, under in found.items() if under}


def named_values(annotation: Any) -> Iterator[str]:
    """Values with a name that a setting of this type may have."""
    if get_origin(annotation) is Literal:
        yield from (value for value in get_args(annotation) if isinstance(value, str))
    else:
        for inside in get_args(annotation):
            yield from named_values(inside)


if __name__ == "__main__":
    print(json.dumps(whole_catalogue(), indent=1, ensure_ascii=False))
