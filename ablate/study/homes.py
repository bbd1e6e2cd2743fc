"""Settings in a section that has none of that name: the path at which a study has them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ablate.study.problems import Problem
from ablate.study.schema import study_schema
from zoo.errors import OTHER_NAMES

SECTIONS = ("train", "base", "budget", "data", "tune", "measure", "evals", "search")
"""Sections in the order in which a setting is looked for; `base.block` comes next, then whatever is further inside."""
ELSEWHERE = {
    "seed": "seeds",
    "model": "base",
    **dict.fromkeys(("steps", "max_steps", "num_steps", "n_steps", "iterations", "max_iters"), "budget.tokens"),
    **dict.fromkeys(("epochs", "n_epochs", "num_epochs", "num_train_epochs", "max_tokens"), "budget.tokens"),
}
"""Settings that other tools have, and what stands for them here."""
PARTS = ("ffn", "mixer")
"""Parts of a block in the order in which a setting is looked for; others come after them."""
COMMON = ("kind", "name", "source")
"""Names that settings of many parts have, so that they tell none."""


def with_homes(problems: Iterable[Problem]) -> list[Problem]:
    """The problems; where a key is unknown to its section and known to another, with its path there."""
    found = list(problems)
    unknown = any(each.kind == "unknown_key" for each in found)
    paths = [path for path in study_schema()["properties"] if path.split(".")[0] in SECTIONS] if unknown else []
    return [_with_home(each, paths) if each.kind == "unknown_key" else each for each in found]


def _with_home(problem: Problem, paths: list[str]) -> Problem:
    said = re.fullmatch(r"unknown key(?: \(did you mean '(.*)'\?\))?", problem.reason)
    place = re.fullmatch(r"(?:scales\.[^.]+\.)?(?:(base|arms)(?:\.[^.]+)??\.|(\w+)\.)?(\w+)", problem.path)
    if said is None or place is None or (place[2] and place[2] not in SECTIONS):
        return problem
    key, near = place[3], said[1] and said[1].rpartition(".")[2]
    if near and (place[2] or near == key or key in OTHER_NAMES.get(near, ())):
        return problem
    home = home_of(key, paths)
    if home is None or home == problem.path:
        return problem
    home = home.removeprefix("base.") if place[1] == "arms" else home
    return replace(problem, reason=f"unknown key (did you mean '{home}'?)")


def home_of(key: str, paths: Iterable[str]) -> str | None:
    """The path that ends in a key, or in what we call it; None where there is none, or the key tells too little."""
    if key in COMMON or key in ELSEWHERE:
        return ELSEWHERE.get(key)
    names = {key, *(ours for ours, theirs in OTHER_NAMES.items() if key in theirs)}
    found = [path for path in paths if "." in path and path.rpartition(".")[2] in names]
    return min(found, key=_distance, default=None)


def _distance(path: str) -> tuple[int, int, int]:
    """Settings of a section itself come first, then those of blocks."""
    section, *inner = path.split(".")
    if section == "base" and inner[0] == "block" and len(inner) > 1:
        return 1, len(inner), PARTS.index(inner[1]) if inner[1] in PARTS else len(PARTS)
    return 2 * (len(inner) > 1), len(inner), SECTIONS.index(section)
