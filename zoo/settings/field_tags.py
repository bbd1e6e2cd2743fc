"""Metadata of a setting beside its type, declared at the field.

heads: Annotated[PositiveInt, Fact.SIZE, Fact.HEADS] = 4

Whoever needs such a list asks here, so that a new setting is in all of them from its own file. A field that a subclass
declares again keeps what its base class says of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, PositiveInt

from zoo.compatibility.traits import EVERY_OPERATION, Operation, Operations
from zoo.settings.axis import Spec
from zoo.settings.edits import SpecJson


class Fact(Enum):
    """Property of a setting."""

    SIZE = auto()
    """It says how large something is, and not what it does."""
    WIDTH = auto()
    """Features that grow with d_model."""
    HEAD_WIDTH = auto()
    """Features of a head."""
    HEADS = auto()
    """Number of heads."""
    SHARED_HEADS = auto()
    """Number of heads that each serve several of the `HEADS`, such as kv heads."""
    SCALE = auto()
    """A factor that goes with a width."""
    SCORE_SCALE = auto()
    """The factor on scores, which goes with the width of a head."""
    LAYERS = auto()
    """It says which blocks the layers are made of."""
    TRAINING = auto()
    """It shows in training alone: a trained model computes the same with another value."""
    TRAINING_UNLESS_NULL = auto()
    """The same, but for whether it is null."""


@dataclass(frozen=True)
class MaxInTests:
    """A model that trains in seconds has this number where the setting is larger."""

    number: int


@dataclass(frozen=True, init=False, eq=False)
class ValuesInTests:
    """Values with which the setting is tried in combination with all others; none where it is not tried.

    paired: whether the default tests check its pairs with other choices, as the slow ones do. costly: whether it takes
    so long in every test that it is tried no more often than to meet all others.
    """

    values: tuple[Any, ...]
    paired: bool
    costly: bool

    def __init__(self, *values: Any, paired: bool = True, costly: bool = False) -> None:
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "paired", paired)
        object.__setattr__(self, "costly", costly)


@dataclass(frozen=True, init=False, eq=False)
class Supports:
    """Operations that work where the setting is on, which is off by default (see `zoo.compatibility.support`)."""

    operations: Operations

    def __init__(self, *operations: Operation) -> None:
        object.__setattr__(self, "operations", frozenset(operations))


@dataclass(frozen=True, eq=False)
class As:
    """The setting is the plain way to write a part of the model, which `make` makes of its value."""

    make: Callable[[Any], Spec]


Dropout = Annotated[float, Field(ge=0, lt=1), Fact.TRAINING, ValuesInTests(0.1), Supports(*EVERY_OPERATION)]
"""A probability that something is left out while training."""
Features = Annotated[PositiveInt, Fact.SIZE, Fact.WIDTH]
"""A setting's type: features that grow with d_model."""
HeadFeatures = Annotated[PositiveInt, Fact.SIZE, Fact.HEAD_WIDTH]
"""A setting's type: features of a head."""
Heads = Annotated[PositiveInt, Fact.SIZE, Fact.HEADS]
"""A setting's type: a number of heads."""

T = TypeVar("T")


@cache
def facts_of(owner: type[BaseModel], name: str) -> frozenset[Any]:
    """All that is said of a setting by its class and the classes that it extends."""
    fields = (getattr(cls, "model_fields", {}).get(name) for cls in owner.__mro__)
    return frozenset(said for field in fields if field is not None for said in _said(field))


def _said(field: Any) -> list[Any]:
    """Also of `Annotated[int, …] | None`."""
    members = getattr(field.annotation, "__args__", ())
    inside = [said for member in members for said in getattr(member, "__metadata__", ())]
    return [
        said
        for said in (*field.metadata, *inside)
        if isinstance(said, Fact | MaxInTests | ValuesInTests | Supports | As)
    ]


@cache
def names_with(owner: type[BaseModel], *facts: Fact) -> tuple[str, ...]:
    """The settings of a class of which one of these is said, in its order."""
    return tuple(name for name in owner.model_fields if facts_of(owner, name) & set(facts))


def said_of(owner: type[BaseModel], name: str, kind: type[T]) -> T | None:
    """Metadata of this class that a setting declares; None without any."""
    return next((said for said in facts_of(owner, name) if isinstance(said, kind)), None)


@cache  # a spec asks for all of its settings whenever it is parsed
def _plain_way(owner: type[BaseModel], name: str) -> As | None:
    return said_of(owner, name, As)


def written_out(part: Spec, name: str) -> Any:
    """The value of a setting: the part that it stands for, where it is the plain way to write one."""
    value, plain = getattr(part, name), _plain_way(type(part), name)
    return plain.make(value) if plain is not None and value else value


def what_computes(spec: Spec) -> SpecJson:
    """A spec as plain data without what shows in training alone."""
    data = spec.model_dump(mode="json")
    for name in data.keys() & type(spec).model_fields.keys():
        facts, value = facts_of(type(spec), name), getattr(spec, name)
        if Fact.TRAINING in facts:
            del data[name]
        elif Fact.TRAINING_UNLESS_NULL in facts:
            data[name] = value is not None
        elif isinstance(value, Spec):
            data[name] = what_computes(value)
    return data
