"""Edits by dotted path: `{"block.mixer.kv_heads": 2}` and `{"block": {"mixer": {"kv_heads": 2}}}` are the same edit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

SpecJson: TypeAlias = dict[str, Any]
"""A spec or a part of one as plain nested data, as `zoo.parse` takes and `ModelSpec.dump` returns."""
Edits: TypeAlias = Mapping[str, Any]
"""Changes to a spec: values, parts or kinds of variants, in dotted paths, nested maps, or both."""


def merge(old: Any, new: Any) -> Any:
    """`old` edited by `new`.

    Maps merge key by key. Two exceptions replace the whole part, since another variant has other settings: a map with a
    different `kind`, and a different bare kind (`"gelu"`). Any other value replaces the old one.
    """
    return _merge(old, expand(new) if isinstance(new, Mapping) else new)


def _merge(old: Any, new: Any) -> Any:
    if isinstance(new, str) and isinstance(old, Mapping) and "kind" in old:
        return dict(old) if old["kind"] == new else {"kind": new}
    if not isinstance(new, Mapping):
        return new
    if not isinstance(old, Mapping) or ("kind" in new and "kind" in old and new["kind"] != old["kind"]):
        return new
    return {**old, **{key: _merge(old.get(key), value) for key, value in new.items()}}


def expand(edits: Edits) -> SpecJson:
    """Expand dotted keys into nested maps: `{"a.b": 1, "a": {"c": 2}}` → `{"a": {"b": 1, "c": 2}}`."""
    nested: SpecJson = {}
    for key, value in edits.items():
        head, _, rest = str(key).partition(".")
        inner = {rest: value} if rest else value
        inner = expand(inner) if isinstance(inner, Mapping) else inner
        both_maps = isinstance(inner, Mapping) and isinstance(nested.get(head), Mapping)
        nested[head] = _merge(nested[head], inner) if both_maps else inner
    return nested


def flatten(edits: Edits, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested edits, as (dotted path, value). An empty map is a leaf."""
    for key, value in edits.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{path}.")
        else:
            yield path, value
