"""Metadata of a setting beyond its type, declared at the field.

heads: Annotated[PositiveInt, Fact.SIZE, Fact.HEADS] = 4

Code that needs a list of such settings queries this module, so that a new setting appears in it from its own file. A
field that a subclass redeclares inherits its base class's metadata.
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
    """A size: changes scale, not behaviour."""
    WIDTH = auto()
    """Number of features that grows with d_model."""
    HEAD_WIDTH = auto()
    """Number of features of a head."""
    HEADS = auto()
    """Number of heads."""
    SHARED_HEADS = auto()
    """Number of heads that each serve several of the `HEADS`, such as KV heads."""
    SCALE = auto()
    """A factor that depends on a width."""
    SCORE_SCALE = auto()
    """The factor on scores, which depends on the width of a head."""
    LAYERS = auto()
    """Determines the blocks that the layers consist of."""
    TRAINING = auto()
    """Affects training only: a trained model computes the same with any value."""
    TRAINING_UNLESS_NULL = auto()
    """Affects training only, except for whether it is null."""


@dataclass(frozen=True)
class MaxInTests:
    """Upper bound of the setting in shrunk models, which train in seconds."""

    number: int


class ValuesInTests:
    """Values with which tests combine the setting with all others; none for no such tests.

    paired: whether the default tests, not only the slow ones, check its pairs with other choices. costly: whether it is
    so slow that tests include it only as often as needed to cover its pairs.
    """

    def __init__(self, *values: Any, paired: bool = True, costly: bool = False) -> None:
        self.values, self.paired, self.costly = values, paired, costly


class Supports:
    """Operations that work if a setting that is off by default is on (see `zoo.compatibility.support`)."""

    def __init__(self, *operations: Operation) -> None:
        self.operations: Operations = frozenset(operations)


@dataclass(frozen=True, eq=False)
class As:
    """Marks a setting as shorthand for a part of the model. `make`: value of the setting → spec of the part."""

    make: Callable[[Any], Spec]


Dropout = Annotated[float, Field(ge=0, lt=1), Fact.TRAINING, ValuesInTests(0.1), Supports(*EVERY_OPERATION)]
"""A setting's type: dropout probability, in training only."""
LARGEST = 10**12
"""Bound on a size: floats and tensors of torch hold products of a few."""
MOST = Field(le=LARGEST)
Features = Annotated[PositiveInt, MOST, Fact.SIZE, Fact.WIDTH]
"""A setting's type: number of features that grows with d_model."""
HeadFeatures = Annotated[PositiveInt, MOST, Fact.SIZE, Fact.HEAD_WIDTH]
"""A setting's type: number of features of a head."""
Heads = Annotated[PositiveInt, MOST, Fact.SIZE, Fact.HEADS]
"""A setting's type: number of heads."""

T = TypeVar("T")


@cache
def facts_of(owner: type[BaseModel], name: str) -> frozenset[Any]:
    """Metadata of a setting, declared by its class or by a base class."""
    found: list[Any] = []
    fields = (getattr(cls, "model_fields", {}).get(name) for cls in owner.__mro__)
    for field in (field for field in fields if field is not None):
        members = getattr(field.annotation, "__args__", ())  # also inside `Annotated[int, …] | None`
        found += [*field.metadata, *(said for member in members for said in getattr(member, "__metadata__", ()))]
    return frozenset(said for said in found if isinstance(said, Fact | MaxInTests | ValuesInTests | Supports | As))


@cache
def names_with(owner: type[BaseModel], *facts: Fact) -> tuple[str, ...]:
    """Settings of a class with at least one of these facts, in the order of declaration."""
    return tuple(name for name in owner.model_fields if facts_of(owner, name) & set(facts))


def said_of(owner: type[BaseModel], name: str, kind: type[T]) -> T | None:
    """A setting's metadata of type `kind`; None if it declares none."""
    return next((said for said in facts_of(owner, name) if isinstance(said, kind)), None)


@cache  # called for every setting whenever a spec is parsed
def _plain_way(owner: type[BaseModel], name: str) -> As | None:
    return said_of(owner, name, As)


def written_out(part: Spec, name: str) -> Any:
    """The value of a setting; for a shorthand that is on (`As`), the part that it stands for."""
    value, plain = getattr(part, name), _plain_way(type(part), name)
    return plain.make(value) if plain is not None and value else value


def what_computes(spec: Spec) -> SpecJson:
    """A spec as plain data, without settings that affect training only."""
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
