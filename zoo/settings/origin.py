"""Where a spec or a model came from: a preset, another library. No part of what it is: equality, digests and dumps of
specs do not see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypedDict

from zoo.settings.axis import Spec
from zoo.settings.edits import Edits


class Origin(NamedTuple):
    """The preset that a spec was loaded as, by name and as plain data."""

    preset: str
    model: Edits


class Converted(TypedDict):
    """Which other library's model one was converted from, so that it can be converted back (see `zoo.hf`)."""

    library: str
    config: dict[str, Any]
    """The library's own config of the model."""


TokenizerFiles: TypeAlias = Mapping[str, str]
"""The files of the tokenizer that a model came with, by name. The model does not use them: `zoo.save` keeps them."""


def as_loaded(preset: str, before: Spec, after: Spec) -> str:
    """`zoo.load('llama3', d_model=256, **{'block.mixer.kv_heads': 2})`: `after` as edits of the preset, `before`."""
    edits = dict(edits_between(before, after))
    named = [f"{path}={value!r}" for path, value in edits.items() if "." not in path]
    inside = {path: value for path, value in edits.items() if "." in path}
    return f"zoo.load({', '.join([repr(preset), *named, *([f'**{inside}'] if inside else [])])})"


def edits_between(before: Spec, after: Spec, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The edits by path that make `after` of `before`."""
    for name in type(after).model_fields:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if isinstance(new, Spec) and type(old) is type(new):
            yield from edits_between(old, new, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", as_edit(new)


def as_edit(value: Any) -> Any:
    """A value as an edit spells it: a part by its kind, with those of its settings that differ from their defaults."""
    if not isinstance(value, Spec):
        return list(value) if isinstance(value, tuple) else value
    settings = {name: as_edit(getattr(value, name)) for name in set_apart(value)}
    kind = getattr(value, "kind", None)
    if kind is None:
        return settings
    return {"kind": kind, **settings} if settings else kind


def set_apart(value: Spec) -> list[str]:
    """The fields that differ from their defaults, in their order; of a variant without its kind."""
    fields = type(value).model_fields.items()
    return [
        name
        for name, field in fields
        if name != "kind"
        and (field.is_required() or getattr(value, name) != field.get_default(call_default_factory=True))
    ]
