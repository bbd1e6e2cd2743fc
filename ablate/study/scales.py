"""Which layers a study has: the file, the chosen scale, the rung of its ladder, then `--set`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ablate.study.layers import Layer
from ablate.study.problems import Problem
from ablate.study.sections import NAME, StudySections
from ablate.study.written import Written
from ablate.study.yamlfile import Keys, YamlDocument
from zoo.errors import did_you_mean

DEFAULT_SCALES = ("cpu", "gpu")
"""What every study can be run at: one of them is taken where none is given."""
USUAL_SCALES = {
    "smoke": "Seconds: everything works. Never a verdict.",
    "cpu": "The demo: under five minutes on two cores, measuring included.",
    "cpu-long": "Up to 40 minutes on two cores, 5 seeds or more: what findings are made at.",
    "gpu-quick": "Minutes per run on one GPU.",
    "gpu": "Up to an hour or so per run on one GPU.",
}
"""What shipped studies call their scales. Any other name will do."""
NAMING = "a name has letters, digits, '_', '+' and '-' (at most 40), and starts with one of the former"
RUNG_SECTIONS = ("base", "budget", "train")
"""What may differ between the sizes of a ladder: losses on other text, or of other arms, would not be one curve."""


@dataclass(frozen=True)
class Layers:
    """What a study says at one scale and one size of its ladder, where it has one. Later layers win."""

    written: Written
    scale: str
    rung: str | None
    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class Sizes:
    """A study at one scale: its layers at every size, the smallest first, and what is wrong with the ladder itself."""

    every: tuple[Layers, ...]
    problems: tuple[Problem, ...]


def sizes_by_scale(written: Written, scale: str) -> list[Sizes]:
    """The study at the scale that is asked for, with its edits, then at each of its other scales, without.

    Mistakes in other scales are better found now than on the machine that they are for.
    """
    document = written.document
    found = _sizes(written, scale)
    asked = replace(found, problems=(*_scale_problems(document, scale), *found.problems))
    return [asked, *(_sizes(replace(written, sets=()), other) for other in _other_scales(document, scale))]


def _sizes(written: Written, scale: str) -> Sizes:
    rungs: list[str | None] = [*_rungs(written.document, scale)]
    every = (Layers(written, scale, rung, _layers(written, scale, rung)) for rung in rungs or [None])
    return Sizes(tuple(every), tuple(_ladder_problems(written.document, scale)))


def _layers(written: Written, scale: str, rung: str | None) -> tuple[Layer, ...]:
    document = written.document
    found = [Layer(document, without=frozenset({"scales"}))]
    if isinstance(_at(document, ("scales", scale)), Mapping):
        found.append(Layer(document, ("scales", scale)))
    if rung is not None:
        found.append(Layer(document, (*_ladder_root(document, scale), rung)))
    return (*found, *written.sets)


def _rungs(document: YamlDocument, scale: str) -> list[str]:
    """Names of the ladder's sizes at a scale, the smallest first; none where it has no ladder."""
    root = _ladder_root(document, scale)
    ladder = _at(document, root) if root else None
    return [name for name, edits in ladder.items() if isinstance(edits, Mapping)] if isinstance(ladder, Mapping) else []


def _ladder_root(document: YamlDocument, scale: str) -> Keys:
    """Where the ladder is written; a scale's own replaces the study's."""
    roots: tuple[Keys, ...] = (("scales", scale, "ladder"), ("ladder",))
    return next((root for root in roots if _at(document, root) is not None), ())


def _at(document: YamlDocument, root: Keys) -> Any:
    here = document.data
    for key in root:
        here = here.get(key) if isinstance(here, Mapping) else None
    return here


def _ladder_problems(document: YamlDocument, scale: str) -> Iterator[Problem]:
    """What is wrong with the ladder itself. Its edits are checked with the sections that they edit."""
    root = _ladder_root(document, scale)
    ladder = _at(document, root) if root else None
    for name, edits in ladder.items() if isinstance(ladder, Mapping) else ():
        where = ".".join(map(str, (*root, name)))
        if not NAME.fullmatch(str(name)):
            yield Problem(document.keys[*root, name], where, NAMING)
        for key in edits if isinstance(edits, Mapping) else ():
            if key.partition(".")[0] not in RUNG_SECTIONS:
                reason = f"a size edits {', '.join(RUNG_SECTIONS[:-1])} and {RUNG_SECTIONS[-1]}, nothing else"
                yield Problem(document.keys[*root, name, key], f"{where}.{key}", reason)
    if isinstance(ladder, Mapping) and len(ladder) == 1:
        yield Problem(document.values[root], ".".join(map(str, root)), "a ladder needs two or more sizes")


def _scale_problems(document: YamlDocument, scale: str) -> Iterator[Problem]:
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
                yield Problem(document.keys[*place, key], f"scales.{name}.{key}", reason, "unknown_key")
    known = list(dict.fromkeys([*(scales or {}), *DEFAULT_SCALES]))
    if scale not in known:
        reason = f"unknown scale '{scale}'" + (did_you_mean(scale, known) or f": one of {', '.join(known)}")
        yield Problem(document.keys.get(("scales",), document.values[()]), "scales", reason)


def _other_scales(document: YamlDocument, scale: str) -> list[str]:
    scales = document.data.get("scales")
    written = scales.items() if isinstance(scales, Mapping) else ()
    return [name for name, edits in written if name != scale and isinstance(edits, Mapping)]
