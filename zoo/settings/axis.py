"""Frozen specs, and axes whose variants are files.

An axis is a package such as `zoo.norms`. Each file in it that does not begin with `_` is a variant: it defines one
`Spec` whose `kind` is the file's name. Nothing else lists variants. A package inside it is an axis of its own. Plug-ins
are files of an axis that lie elsewhere (`zoo.settings.registry`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from zoo.compatibility.traits import NO_OPERATION, Operations
from zoo.errors import PluginError
from zoo.settings.descriptions import descriptions
from zoo.settings.edits import Edits
from zoo.settings.registry import called, member, members

Number = TypeVar("Number", int, float)

Examples: TypeAlias = tuple[Edits, ...]
"""Settings of a variant, several times."""


class Spec(BaseModel):
    """A frozen value that refuses unknown keys and wrong types (`4` is a float, `1e5` an int, `"4"` neither)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # hundreds of classes, of which a command validates few
    )

    fields_from: ClassVar[tuple[type[BaseModel], ...]] = ()
    """Classes whose fields `create_model` gave to this one: their source describes them."""
    supports: ClassVar[Operations] = NO_OPERATION
    """Operations that work on models that have it (see `zoo.compatibility.support`). Without a declaration, none."""
    identity_version: ClassVar[int] = 1
    """Version, counted up when the same settings come to mean other numbers: digests then differ from those before."""

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, settings: Any) -> Any:
        """YAML and JSON write whole numbers as `1e5`, too."""
        if not isinstance(settings, dict):
            return settings
        whole = {name: int(value) for name, value in settings.items() if _is_whole(value) and _wants_whole(cls, name)}
        return settings | whole if whole else settings

    def keeps_width(self, setting: str) -> bool:
        """Whether the part at a setting has as many features in a wider model, so that it need not support operations
        on widths (`OF_VALUES`)."""
        return False

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Itself, since it never changes: copies of a model share their specs."""
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """With the descriptions of its settings, which editors show."""
        found = handler(schema)
        settings = handler.resolve_ref_schema(found).get("properties", {})
        for name, text in descriptions(cls).items():
            if name in settings:
                settings[name].setdefault("description", text)
        return found

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Fields that differ from their defaults: the rest is in the class's documentation."""
        for name, value in super().__repr_args__():
            field = type(self).model_fields.get(str(name))
            if field is None or field.is_required() or value != field.get_default(call_default_factory=True):
                yield name, value


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


@functools.cache
def _wants_whole(spec: type[Spec], setting: str) -> bool:
    """Whether a setting takes whole numbers, perhaps null, and nothing else."""
    field = spec.model_fields.get(setting)
    return field is not None and {int} == set(_plain_types(field.annotation)) - {NoneType}


def _plain_types(annotation: Any) -> Iterator[Any]:
    """Types that an annotation is made of, without those inside lists and maps."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _plain_types(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _plain_types(part)
    else:
        yield annotation


def is_off(value: Any) -> bool:
    """Whether a setting does nothing: null, zero, false or empty. `Field(exclude_if=is_off)` leaves it out of plain
    data then."""
    return not value


def number(setting: Number | None) -> Number:
    """A setting that may be null until the spec is resolved. Raises TypeError before that."""
    if setting is None:
        raise TypeError("the spec is not resolved: `resolve(d_model)` turns its defaults into numbers")
    return setting


class Variant(Spec):
    """A spec that is one choice on an axis. Subclasses in an axis file narrow `kind` to the file's name."""

    examples: ClassVar[Examples] = ({},)
    """Settings at which the variant is tried with every choice of the other axes, for a model of d_model 24 with 4
    heads of 6 features. To be given where the defaults are too large or leave something out, or there are none."""

    paired_examples: ClassVar[int | None] = None
    """Number of the first examples whose pairs with other choices are among those that the default tests check; the
    slow tests check those of the others, too. Null for all. A variant that is built of parts which other variants have
    too can be 0: the default tests then check each of its examples in two models."""

    requires: ClassVar[Edits] = {}
    """Edits of a model by path without which it cannot have the variant."""

    kind: str
    """Name of the variant, the file's; a bare name stands for `{kind: name}`."""


def variants(axis: str, tag: str = "kind") -> dict[str, type[Spec]]:
    """Every variant of an axis package (`"zoo.norms"`), by its `tag` field, in alphabetical order."""
    return {name: _variant_of(member(axis, name), name, tag) for name in members(axis)}


@functools.cache
def _variant_of(module: ModuleType, name: str, tag: str) -> type[Spec]:
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Spec) and kind_of(value, tag) == name
    ]
    if len(own) != 1:
        raise PluginError(f"{called(module)}: expected one spec with {tag}: Literal['{name}'], found {len(own)}")
    if lacking := sorted(own[0].__abstractmethods__):
        raise PluginError(f"{called(module)}: {own[0].__name__} lacks {', '.join(lacking)}")
    return own[0]


def axis_of(variant: type[Variant]) -> str:
    """The package of a variant's axis: that of the class which all variants of it extend."""
    return [cls.__module__ for cls in variant.__mro__ if issubclass(cls, Variant) and cls is not Variant][-1]


def kind_of(cls: type[BaseModel], tag: str = "kind") -> str | None:
    """The kind that a spec class fixes in its `tag` field, or None for a base class."""
    field = cls.model_fields.get(tag)
    kinds = get_args(field.annotation) if field is not None else ()
    return kinds[0] if kinds else None


@dataclass(frozen=True)
class Choice:
    """Field annotation: a variant of an axis, given as a spec, as a map with `kind`, or as the bare kind.

    `tag` is the field that tells the variants apart, where that is not `kind`.
    Errors name the field's own path, with the kind added after it (see `zoo.settings.explain`).
    """

    axis: str
    tag: str = "kind"

    def variants(self) -> dict[str, type[Spec]]:
        """Variants to choose from, by name."""
        return variants(self.axis, self.tag)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        members = tuple(Annotated[cls, Tag(name)] for name, cls in self.variants().items())
        # The members are known at run time only, which `Union[...]` cannot say to a type checker.
        union: Any = Union.__getitem__(members)
        return handler.generate_schema(Annotated[union, Discriminator(self._tag_of), BeforeValidator(self._named)])

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": list(variants(self.axis, self.tag))}, handler(schema)]}

    def _named(self, value: Any) -> Any:
        """`"rmsnorm"` means `{kind: rmsnorm}`."""
        return {self.tag: value} if isinstance(value, str) else value

    def _tag_of(self, value: Any) -> str | None:
        return value.get(self.tag) if isinstance(value, dict) else getattr(value, self.tag, None)
