"""Origin of a spec or a model: a preset, or another library. Equality, digests and dumps of specs ignore it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypedDict

from zoo.settings.axis import Spec
from zoo.settings.edits import Edits


class Origin(NamedTuple):
    """The preset that a spec was loaded from. preset: its name. model: its spec as plain data."""

    preset: str
    model: Edits


class Converted(TypedDict):
    """Source of a model converted from another library, so that it can be converted back (see `zoo.hf`)."""

    library: str
    config: dict[str, Any]
    """The model's config in that library."""


TokenizerFiles: TypeAlias = Mapping[str, str]
"""Tokenizer files that a model came with, by name. The model does not use them, but `zoo.save` keeps them."""


def as_loaded(preset: str, before: Spec, after: Spec) -> str:
    """Python call that loads `after` as edits of the preset, `before`:
    `zoo.load('llama3', d_model=256, **{'block.mixer.kv_heads': 2})`."""
    edits = dict(edits_between(before, after))
    named = [f"{path}={value!r}" for path, value in edits.items() if "." not in path]
    inside = {path: value for path, value in edits.items() if "." in path}
    return f"zoo.load({', '.join([repr(preset), *named, *([f'**{inside}'] if inside else [])])})"


def edits_between(before: Spec, after: Spec, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Edits, as (path, value), that turn `before` into `after`."""
    for name in type(after).model_fields:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(new, Spec) and type(old) is type(new):
            yield from edits_between(old, new, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", as_edit(new)


def as_edit(value: Any) -> Any:
    """A value as an edit: a part becomes its kind, its required settings and those that differ from their defaults."""
    if not isinstance(value, Spec):
        return list(value) if isinstance(value, tuple) else value
    settings = {
        name: as_edit(getattr(value, name))
        for name, field in type(value).model_fields.items()
        if name != "kind"
        and (field.is_required() or getattr(value, name) != field.get_default(call_default_factory=True))
    }
    kind = getattr(value, "kind", None)
    if kind is None:
        return settings
    return {"kind": kind, **settings} if settings else kind
