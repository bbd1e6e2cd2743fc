"""Where a mistaken key of a study belongs: another section, or this project's name for it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import replace

from ablate.study.complaints import Problem
from ablate.wings.prepare.schema import study_schema
from zoo.vocabulary import names_for

SECTIONS = ("train", "base", "budget", "data", "tune", "measure", "evals", "search")
"""Sections in the order in which a setting is looked up; `base.block` comes next, then deeper settings."""
ELSEWHERE = {
    "seed": "seeds",
    "model": "base",
    **dict.fromkeys(("steps", "max_steps", "num_steps", "n_steps", "iterations", "max_iters"), "budget.tokens"),
    **dict.fromkeys(("epochs", "n_epochs", "num_epochs", "num_train_epochs", "max_tokens"), "budget.tokens"),
}
"""Settings of other tools, and their equivalents here."""
PARTS = ("ffn", "mixer")
"""Parts of a block in the order in which a setting is looked up; others come after them."""
COMMON = ("kind", "name", "source")
"""Names of settings that many parts have: too ambiguous for a hint."""


@functools.cache
def _paths() -> tuple[str, ...]:
    """Paths of all settings of sections. Cached, since the schema takes longer than the study."""
    return tuple(path for path in study_schema()["properties"] if path.split(".")[0] in SECTIONS)


def with_remedy(problem: Problem) -> Problem:
    """The problem of an unknown key; if another section has the key, it suggests the path there."""
    if problem.kind != "unknown_key":
        return problem
    said = re.fullmatch(r"unknown key(?: \(did you mean '(.*)'\?\)|: one of .*)?", problem.reason)
    root = r"(?:scales\.[^.]+\.)?(?:(base|arms\.[^.]+|search\.space)\.)?"
    place = re.fullmatch(root + r"((?:\w+\.)*)(\w+)", problem.path)
    if said is None or place is None:
        return problem
    around, key, near = place[2].split(".")[:-1], place[3], said[1] and said[1].rpartition(".")[2]
    section = around[0] if around[:1] and around[0] in SECTIONS else "base" if place[1] else None
    if around and section is None:
        return problem
    if near and (around or near == key or near in names_for(key)):
        return problem
    # inside a part, only settings of the section around it are meant
    is_inside = len(around) > 1 or (around and section == "base")
    home = home_of(key, [path for path in _paths() if path.split(".")[0] == section] if is_inside else _paths())
    if home is None or home == problem.path:
        return problem
    home = home.removeprefix("base.") if place[1] and place[1] != "base" else home
    return replace(problem, reason=f"unknown key (did you mean '{home}'?)")


def home_of(key: str, paths: Iterable[str]) -> str | None:
    """The path that ends in a key, or in this project's name for it; None if there is none, or the key is ambiguous."""
    if key in COMMON or key in ELSEWHERE:
        return ELSEWHERE.get(key)
    names = {key, *names_for(key)}
    found = [path for path in paths if "." in path and path.rpartition(".")[2] in names]
    return min(found, key=_distance, default=None)


def _distance(path: str) -> tuple[int, int, int]:
    """Sort key: settings of a section itself come first, then those of blocks."""
    section, *inner = path.split(".")
    if section == "base" and inner[0] == "block" and len(inner) > 1:
        return 1, len(inner), PARTS.index(inner[1]) if inner[1] in PARTS else len(PARTS)
    return 2 * (len(inner) > 1), len(inner), SECTIONS.index(section)
