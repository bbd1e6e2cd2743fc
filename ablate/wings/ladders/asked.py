"""The rungs that a study lists, and problems of the list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ablate.study.complaints import Problem
from ablate.study.layers import Layer
from ablate.study.scales import NAMING, Rung, at
from ablate.study.yamlfile import Keys, YamlDocument
from ablate.wings.ladders.keys import is_share
from store.paths import NAME

RUNG_SECTIONS = ("base", "budget", "train")
"""Sections that may differ between the rungs of a ladder: losses on other text, or of other arms, would not form one
curve."""


def rungs(places: Sequence[Layer]) -> tuple[list[Rung], list[Problem]]:
    """Rungs, the compared one last, and problems of the ladder itself; its edits are checked with the sections that
    they edit. places: where a ladder may be; the first one counts, and null there means none."""
    around = ((place, at(place.document, place.root)) for place in places)
    first = (place for place, each in around if isinstance(each, Mapping) and "ladder" in each)
    where = next((replace(place, root=(*place.root, "ladder"), without=frozenset()) for place in first), None)
    if where is None or not isinstance(ladder := at(where.document, where.root), Mapping):
        return [], []
    document, root = where.document, where.root
    # Rungs that are neither edits nor a share are refused elsewhere.
    found = [
        Rung(name, replace(where, root=(*root, name))) if isinstance(each, Mapping) else Rung(name, share=each)
        for name, each in ladder.items()
        if isinstance(each, Mapping) or is_share(each)
    ]
    return found, list(_problems(document, root, ladder))


def _problems(document: YamlDocument, root: Keys, ladder: Mapping[str, Any]) -> Iterator[Problem]:
    for name, edits in ladder.items():
        where = ".".join(map(str, (*root, name)))
        if not NAME.fullmatch(str(name)):
            yield Problem(document.keys[*root, name], where, NAMING)
        for key in edits if isinstance(edits, Mapping) else ():
            if key.partition(".")[0] not in RUNG_SECTIONS:
                reason = f"a rung may edit only {', '.join(RUNG_SECTIONS[:-1])} and {RUNG_SECTIONS[-1]}"
                yield Problem(document.keys[*root, name, key], f"{where}.{key}", reason)
    if len(ladder) == 1:
        yield Problem(document.values[root], ".".join(map(str, root)), "a ladder needs two or more rungs")
    elif ladder and is_share(list(ladder.values())[-1]):
        last = (*root, list(ladder)[-1])
        reason = "arms are compared at the last rung, which must have the whole budget: end with, e.g., full: {}"
        yield Problem(document.values[last], ".".join(map(str, last)), reason)
