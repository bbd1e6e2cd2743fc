"""Every variant of an axis stands in a study that ships, or in the guide's list with the question it would answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import zoo
from zoo.settings.axis import members

ROOT = Path(__file__).parents[2]
KEYS = {
    "mixers": "mixer",
    "ffns": "ffn",
    "norms": r"\w*norm",
    "residuals": "norm_placement",
    "positions": "position",
    "positions.scalings": "scaling",
    "sparsities": "sparsity",
    "caches": "caches?",
    "features": None,
    "block_features": None,
}
"""Settings that take a variant of each axis; a feature is a setting by its own name."""
TEXT = ("claims", "question", "source")


def settings(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str | None]]:
    """Each name of a setting in a study, with its value where that names a variant."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if path[-1:] == ("arms",):  # an arm's name, which may be that of a variant
                yield from settings(value)
            elif key not in TEXT:
                parts = tuple(str(key).split("."))
                yield from ((name, None) for name in parts)
                yield from settings(value, (*path[-1:], *parts))
    elif isinstance(tree, list):
        for value in tree:
            yield from settings(value, path)
    elif isinstance(tree, str):
        if path[-1:] == ("preset",):
            yield from settings(zoo.load(tree).model_dump(mode="json"))
        named = [name for name in path if name != "kind"]
        yield from ((name, tree) for name in named[-1:])


@pytest.fixture(scope="module")
def shown() -> set[str]:
    """Variants in studies, in the model of a study that names no preset, and what decoding is measured with first."""
    found = {*settings({"preset": "small"}), ("cache", "plain")}
    for file in (*(ROOT / "studies").glob("*.yaml"), *(ROOT / "studies" / "papers").glob("*.yaml")):
        found |= set(settings(yaml.safe_load(file.read_text(encoding="utf-8"))))
    return {
        f"{axis}.{name}"
        for axis, key in KEYS.items()
        for name in members(f"zoo.{axis}")
        if any(name == (value if key else setting) and re.fullmatch(key or name, setting) for setting, value in found)
    }


def listed() -> list[tuple[str, str]]:
    """Rows of the table: variant, question."""
    page = (ROOT / "studies" / "QUESTIONS.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([a-z0-9_.]+)` \| ([^|]+\?) \|", page, flags=re.MULTILINE)


def test_every_variant_stands_in_a_study_or_in_the_list_of_questions(shown: set[str]) -> None:
    names = [name for name, _ in listed()]
    every = {f"{axis}.{name}" for axis in KEYS for name in members(f"zoo.{axis}")}
    assert len(names) == len(set(names))
    assert set(names) | shown == every
    assert not set(names) & shown, "in a study by now"
