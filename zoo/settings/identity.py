"""Identities of specs, as plain data, and their digests; and the origin of a spec or a model: a preset, or another
library. Equality, digests and dumps of specs ignore the origin.

Settings equal to their first default are omitted, so that a new setting with a neutral default changes no digest. If a
default changes later, the field keeps the first one, which an absent value still means:

    lr: Annotated[PositiveFloat, FirstDefault(1e-3)] = 3e-3

If the code of a spec changes what it computes from the same settings, the class increments `identity_version`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypedDict

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from zoo.settings.axis import Spec
from zoo.settings.edits import Edits, SpecJson

DIGITS = 20
"""Hex digits of a digest. Before November 2026, digests of runs and requests had 16 and covered every default."""
TAGS = ("kind", "source")
"""Names of the discriminator fields, which name the variant of an axis."""


@dataclass(frozen=True)
class FirstDefault:
    """Field annotation: the value that digests omit, if the default has changed since. `FirstDefault(...)`: the setting
    was required at first, so digests include every value."""

    value: Any


def identity_of(value: Any, *, versions: bool = True) -> Any:
    """A spec, or values with specs inside, as plain data without first defaults. versions: whether to include
    `identity_version` where it is not 1."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, BaseModel):
        first, told = _first_defaults(type(value)), {}
        for name in _hashed(type(value)):
            each = identity_of(getattr(value, name), versions=versions)
            if name not in first or not is_same(each, first[name]):
                told[name] = each
        version = getattr(value, "identity_version", 1)
        return {**told, "identity_version": version} if versions and version != 1 else told
    if isinstance(value, Mapping):
        return {str(key): identity_of(each, versions=versions) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [identity_of(each, versions=versions) for each in value]
    return to_jsonable_python(value)


def is_same(one: Any, other: Any) -> bool:
    """Whether plain data is equal as JSON: 1, 1.0 and true differ, and so do 0.0 and -0.0."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        return all(is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return all(map(is_same, one, other))
    return not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other)


@cache
def _hashed(cls: type[BaseModel]) -> tuple[str, ...]:
    return tuple(name for name, field in cls.model_fields.items() if not field.exclude)


@cache
def _first_defaults(cls: type[BaseModel]) -> SpecJson:
    """First default of each field as plain data. Tags have none, since they must stay in digests."""
    firsts = {name: first_default(field) for name, field in cls.model_fields.items() if name not in TAGS}
    return {name: identity_of(value, versions=False) for name, value in firsts.items() if value is not ...}


def first_default(field: FieldInfo) -> Any:
    """The value of a setting that digests omit; `...` if they include every value."""
    for said in field.metadata:
        if isinstance(said, FirstDefault):
            return said.value
    return ... if field.is_required() else field.get_default(call_default_factory=True)


def canonical(data: object) -> str:
    """JSON with sorted keys and without spaces."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(data: object, digits: int = DIGITS) -> str:
    """The first `digits` hex digits of the SHA-256 of canonical JSON."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()[:digits]


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
