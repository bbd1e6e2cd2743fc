"""Named parts of models and of their training, which link results to variants of the zoo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, TypeAlias

Plain: TypeAlias = Mapping[str, Any]
"""Edits by path, or a document as parsed JSON."""
NAMING = ("kind", "source")
"""Keys whose value names the part that contains them."""


def parts_of(data: Plain) -> frozenset[str]:
    """Named parts of plain data with full or dotted keys: `setting=word` for a string value, and the name of each
    mapping (`name=kind` if it has a kind or source)."""
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
    """Parts of each arm that some other arm lacks. An arm without data has none."""
    found = {name: parts_of(data) for name, data in arms.items() if data}
    common = reduce(frozenset.__and__, found.values()) if found else frozenset()
    return {name: tuple(sorted(found.get(name, common) - common)) for name in arms}
