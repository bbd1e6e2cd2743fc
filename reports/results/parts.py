"""Named parts of a model: `norm_placement=post`, `mixer=mla`, `canon`. They link a result to variants of the zoo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, TypeAlias

Plain: TypeAlias = Mapping[str, Any]
"""Edits by path, or a document as JSON has it."""

NAMING = ("kind", "source")
"""Keys whose value names the part around them."""


def parts_of(data: Plain) -> frozenset[str]:
    """Every part in plain data, with full or dotted keys: words by the setting that takes them, and maps by name."""
    return frozenset(_walk("", data))


def _walk(name: str, value: Any) -> Iterator[str]:
    match value:
        case str():
            yield f"{name}={value}"
        case list() | tuple():
            for each in value:
                yield from _walk(name, each)
        case Mapping():
            kind = next((value[key] for key in NAMING if isinstance(value.get(key), str)), None)
            if name:
                yield f"{name}={kind}" if kind else name
            for key, inside in value.items():
                parent, _, last = key.rpartition(".")
                if last not in NAMING:
                    yield from _walk(last, inside)
                elif parent:
                    yield from _walk(parent.rpartition(".")[2], inside)


def own_parts(arms: Mapping[str, Plain]) -> dict[str, tuple[str, ...]]:
    """The parts of each arm that not all arms have. Arms of which nothing is known have none."""
    found = {name: parts_of(data) for name, data in arms.items() if data}
    common = reduce(frozenset.__and__, found.values()) if found else frozenset()
    return {name: tuple(sorted(found.get(name, common) - common)) for name in arms}
