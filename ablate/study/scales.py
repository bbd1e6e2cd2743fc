"""Which layers a study has: the file, the chosen scale, the rung of its ladder, then `--set`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ablate.study.layers import Layer
from ablate.study.problems import Problem
from ablate.study.sections import NAME, StudySections
from ablate.study.written import Written
from ablate.study.yamlfile import Document, Keys
from zoo.errors import did_you_mean

DEFAULT_SCALES = ("cpu", "gpu")
NAMING = "a name has letters, digits, '_', '+' and '-' (at most 40), and starts with one of the former"
RUNG_SECTIONS = ("base", "budget", "train")
"""What may differ between the sizes of a ladder: losses on other text, or of other arms, would not be one curve."""


def layers(written: Written, scale: str, rung: str | None) -> list[Layer]:
    """Later layers win."""
    document = written.document
    found = [Layer(document, without=frozenset({"scales"}))]
    if isinstance(_at(document, ("scales", scale)), Mapping):
        found.append(Layer(document, ("scales", scale)))
    if rung is not None:
        found.append(Layer(document, (*_ladder_root(document, scale), rung)))
    return [*found, *written.sets]


def rungs(document: Document, scale: str) -> list[str]:
    """Names of the ladder's sizes at a scale, the smallest first; none where it has no ladder."""
    root = _ladder_root(document, scale)
    ladder = _at(document, root) if root else None
    return [name for name, edits in ladder.items() if isinstance(edits, Mapping)] if isinstance(ladder, Mapping) else []


def _ladder_root(document: Document, scale: str) -> Keys:
    """Where the ladder is written; a scale's own replaces the study's."""
    roots: tuple[Keys, ...] = (("scales", scale, "ladder"), ("ladder",))
    return next((root for root in roots if _at(document, root) is not None), ())


def _at(document: Document, root: Keys) -> Any:
    here = document.data
    for key in root:
        here = here.get(key) if isinstance(here, Mapping) else None
    return here


def ladder_problems(document: Document, scale: str) -> Iterator[Problem]:
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
        yield Problem(document.values[root], ".".join(map(str, root)), "one size is no ladder: give two or more")


def scale_problems(document: Document, scale: str | None) -> Iterator[Problem]:
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
    if scale is not None and scale not in known:
        reason = f"unknown scale '{scale}'" + (did_you_mean(scale, known) or f": one of {', '.join(known)}")
        yield Problem(document.keys.get(("scales",), document.values[()]), "scales", reason)


def other_scales(document: Document, scale: str) -> list[str]:
    """The scales that are not asked for: their mistakes are better found now than on the machine that they are for."""
    scales = document.data.get("scales")
    written = scales.items() if isinstance(scales, Mapping) else ()
    return [name for name, edits in written if name != scale and isinstance(edits, Mapping)]


def by_size(refused: Mapping[str | None, Sequence[Problem]], count: int) -> Iterator[Problem]:
    """Problems of one size say so where they do not stand in it."""
    times = Counter(problem for problems in refused.values() for problem in set(problems))
    for rung, problems in refused.items():
        for problem in problems:
            said = times[problem] == count or rung is None or f"ladder.{rung}" in problem.path
            yield problem if said else replace(problem, reason=f"{problem.reason} (at size {rung})")
