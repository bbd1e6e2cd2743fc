"""Where a spec came from, so that it can be shown as its edits of a preset. No part of what it is: equality, digests
and dumps do not see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zoo.axis import Spec
from zoo.edits import Edits


class Origin(NamedTuple):
    """The preset that a spec was loaded as, by name and as plain data."""

    preset: str
    model: Edits


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
