"""Compatibility matrix: every choice on every axis of a model, and the reasons why pairs cannot be combined.

This module lists no variants or settings. The axes are the parts of a block and the settings of the model, of the block
and of its default parts. The choices are the files of an axis, at the `examples` that each gives, or the values that a
setting's type allows. Choices that cannot be combined are those that the specs themselves refuse.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypedDict, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from zoo.caches import cache_kind
from zoo.caching.cache import NOTHING_TO_CACHE
from zoo.errors import SpecError, UnsupportedError
from zoo.settings.axis import Choice, Spec, Variant, variants
from zoo.settings.edits import Edits, SpecJson, merge
from zoo.settings.explain import checked, choice_of
from zoo.settings.field_tags import Fact, ValuesInTests, facts_of, said_of
from zoo.spec import ModelSpec

SMALL = {"vocab_size": 61, "d_model": 24, "n_layers": 3, "block.mixer.heads": 4, "block.ffn.d_ff": 40}
"""The model that choices edit. Its sizes differ, so that a transposed or mistaken dimension shows."""

CACHES = "zoo.caches"
"""Package of the kinds of cache, which are not part of a spec."""

PATTERNS: dict[str, SpecJson] = {
    "window, full without positions": {
        "blocks": {"local": {"mixer.window": 3}, "far": {"mixer.position": "nope"}},
        "pattern": ["local", "far"],
    },
    "every second layer attends": {
        "blocks": {"attn": {"mixer": {"kind": "attention", "heads": 4}}},
        "pattern": ["block", "attn"],
    },
    "every second layer reuses keys": {
        "blocks": {"reader": {"mixer.reuse_kv": True}},
        "pattern": ["block", "reader"],
    },
    "another first layer": {"blocks": {"opening": {"ffn": {"kind": "relu", "d_ff": 16}}}, "first": ["opening"]},
}
"""Choices of layer patterns, each of which sets several settings."""


class MatrixDocument(TypedDict):
    """The matrix as plain data."""

    axes: dict[str, list[str]]
    """The choices of each axis; kinds of cache last."""
    conflicts: dict[str, list[list[str]]]
    """Pairs that cannot be combined, by reason: [axis, choice, axis, choice]."""


@dataclass(frozen=True, eq=False)
class AxisOption:
    """A choice on an axis: edits of the small model. Options are compared by identity, so that sets of them are fast.

    paired: whether the default tests check its pairs with other choices. costly: whether it is tried no more often than
    needed to meet all others.
    """

    axis: str
    name: str
    edits: SpecJson
    paired: bool = True
    costly: bool = False

    def __str__(self) -> str:
        return f"{self.axis}: {self.name}"


@cache
def axes() -> Mapping[str, tuple[AxisOption, ...]]:
    """The choices, keyed by axis, parts before settings: all kinds of a part, all but the default of a setting."""
    patterns = (AxisOption("pattern", name, edits) for name, edits in PATTERNS.items())
    found = itertools.chain(_options(ModelSpec, ""), patterns)
    return {axis: tuple(of) for axis, of in itertools.groupby(found, key=lambda option: option.axis)}


def combine(chosen: Iterable[AxisOption]) -> ModelSpec:
    """The small model with these choices. Raises SpecError if they cannot be combined."""
    data = _small()
    for option in sorted(chosen, key=lambda option: _places()[option.axis]):
        data = merge(data, option.edits)
    return checked(ModelSpec, data)


def conflict(*chosen: AxisOption) -> str | None:
    """Reason why choices cannot be combined; None if they can. Cached: covering arrays ask for it repeatedly."""
    return _conflict(frozenset(option for option in chosen if option.edits))


@cache
def _conflict(chosen: frozenset[AxisOption]) -> str | None:
    try:
        combine(chosen)
    except SpecError as error:
        return str(error)
    return None


def pairs() -> Iterator[tuple[AxisOption, AxisOption, str | None]]:
    """Every two choices of different axes, and the reason why they cannot be combined, or None."""
    for one, other in itertools.combinations(axes().values(), 2):
        for a, b in itertools.product(one, other):
            yield a, b, conflict(a, b)


def unserved(option: AxisOption, kind: str) -> str | None:
    """Reason why a model with this choice cannot have this kind of cache; None if it can."""
    spec = combine([option])
    if spec.visible == "all":
        return NOTHING_TO_CACHE
    try:
        cache_kind(kind).check(spec)
    except UnsupportedError as error:
        return str(error)
    return None


def document() -> MatrixDocument:
    """All choices, and the pairs that cannot be combined, as plain data."""
    conflicts: dict[str, list[list[str]]] = {}
    for a, b, reason in pairs():
        if reason is not None:
            conflicts.setdefault(reason, []).append([a.axis, a.name, b.axis, b.name])
    names = {axis: [option.name for option in of] for axis, of in axes().items()}
    for option, kind in itertools.product(itertools.chain(*axes().values()), kinds := list(variants(CACHES))):
        if (reason := unserved(option, kind)) is not None:
            conflicts.setdefault(reason, []).append([option.axis, option.name, "cache", kind])
    return MatrixDocument(axes=names | {"cache": kinds}, conflicts=conflicts)


@cache
def _places() -> Mapping[str, int]:
    """Index of each axis in their order."""
    return {axis: place for place, axis in enumerate(axes())}


@cache
def _small() -> SpecJson:
    return ModelSpec().edit(SMALL).dump()


def _options(owner: type[BaseModel], prefix: str) -> Iterator[AxisOption]:
    """The choices of a spec's settings, and of the settings of its default parts."""
    for name, setting in owner.model_fields.items():
        path = f"{prefix}{name}"
        axis = path.removeprefix("block.")
        default = setting.get_default(call_default_factory=True)
        # The values that its class declares, none for a size; None if they follow from the setting's type.
        sized = ValuesInTests() if Fact.SIZE in facts_of(owner, name) else None
        tried = said_of(owner, name, ValuesInTests) or sized
        paired = tried is None or tried.paired
        for label, value, others, known in _values(setting, default, tried):
            yield AxisOption(axis, label, {path: value, **others}, paired and known, tried is not None and tried.costly)
        if isinstance(default, Spec) and tried is None:
            yield from _options(type(default), f"{path}.")


def _values(setting: FieldInfo, default: Any, tried: ValuesInTests | None) -> Iterator[tuple[str, Any, Edits, bool]]:
    """Name, value, further edits that it needs and `paired`, for each value of a setting except its default; the
    default is included if it is a part of the model."""
    choice = choice_of(setting)
    if choice is not None and tried is None:
        yield from _kinds(choice)
    elif not isinstance(default, Spec):
        for value in _samples(setting.annotation) if tried is None else tried.values:
            if value != default:
                yield _said(value), value, {}, True


def _kinds(choice: Choice) -> Iterator[tuple[str, SpecJson, Edits, bool]]:
    for kind, variant in choice.variants().items():
        examples, others = (variant.examples, variant.requires) if issubclass(variant, Variant) else (({},), {})
        paired = variant.paired_examples if issubclass(variant, Variant) else None
        for number, example in enumerate(examples):
            # Written out in full, so that choices of its settings can edit it.
            whole = variant.model_validate({choice.tag: kind, **example}).model_dump(mode="json")
            details = [f"{key}={_said(value)}" for key, value in example.items()] if number else []
            yield " ".join([kind, *details]), whole, others, paired is None or number < paired


def _samples(annotation: Any) -> Iterator[Any]:
    """Values of a type: all of a literal or a boolean, and one number."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        yield from inside
    elif origin is Annotated:
        yield from _samples(inside[0])
    elif origin in (Union, types.UnionType):
        for member in inside:
            yield from _samples(member)
    elif annotation is bool:
        yield from (True, False)
    elif annotation in (int, float):
        yield {int: 2, float: 1.5}[annotation]


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return " ".join(f"{key}={_said(inner)}" for key, inner in value.items()) or "at its defaults"
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
