"""Frozen specs, and axes whose variants are files.

An axis is a package such as `zoo.norms`. Each file in it that does not begin with `_` is a variant: it defines one
`Spec` whose `kind` is the file's name. Small siblings share a file, which then has the name of none of them. No other
list of variants exists. A package inside an axis is an axis of its own. Plug-ins are variant files outside the package
(`zoo.settings.registry`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
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
from zoo.settings.registry import called, member, members, plugins_of

Number = TypeVar("Number", int, float)

MOST_WHOLE = 2**63 - 1
"""Largest whole number of 64 bits."""

Examples: TypeAlias = tuple[Edits, ...]
"""Example settings of a variant, one `Edits` per example."""


class Spec(BaseModel):
    """A frozen value that refuses unknown keys and wrong types. `4` passes as a float and `1e5` as an int, `"4"` as
    neither."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # hundreds of classes, of which a command validates few
    )

    fields_from: ClassVar[tuple[type[BaseModel], ...]] = ()
    """Classes whose fields `create_model` copied into this one; field descriptions are read from their source."""
    supports: ClassVar[Operations] = NO_OPERATION
    """Operations that work on models with this part (see `zoo.compatibility.support`); none by default."""
    identity_version: ClassVar[int] = 1
    """Version, incremented when code computes different numbers from the same settings, so that digests change."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of the fields, whose whole numbers have 64 bits at most: as tensors, seeds and files hold them."""
        found = handler(source)
        _bound_whole_numbers(found)
        return found

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, settings: Any) -> Any:
        """Convert whole floats to int for integer settings, since YAML and JSON may write integers as `1e5`."""
        if not isinstance(settings, dict):
            return settings
        floats = {name: value for name, value in settings.items() if isinstance(value, float) and value.is_integer()}
        return settings | {name: int(value) for name, value in floats.items() if _wants_whole(cls, name)}

    def keeps_width(self, setting: str) -> bool:
        """Whether the part at `setting` keeps its width in a wider model, so that it need not support operations on
        widths (`OF_VALUES`)."""
        return False

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """The spec itself, since it is immutable: copies of a model share their specs."""
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """JSON schema with the descriptions of the settings, which editors show."""
        found = handler(schema)
        settings = handler.resolve_ref_schema(found).get("properties", {})
        for name, text in descriptions(cls).items():
            if name in settings:
                settings[name].setdefault("description", text)
        return found

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Only fields that differ from their defaults."""
        for name, value in super().__repr_args__():
            field = type(self).model_fields.get(str(name))
            if field is None or field.is_required() or value != field.get_default(call_default_factory=True):
                yield name, value


def _bound_whole_numbers(schema: Any) -> None:
    """Bound the whole numbers of a core schema that have no bound of their own."""
    if isinstance(schema, dict):
        if schema.get("type") == "int":
            schema |= {"le": MOST_WHOLE, **schema}
            schema |= {} if "gt" in schema else {"ge": -MOST_WHOLE, **schema}
        for inner in schema.values():
            _bound_whole_numbers(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            _bound_whole_numbers(inner)


@functools.cache
def _wants_whole(spec: type[Spec], setting: str) -> bool:
    """Whether a setting takes only integers, or only integers and null."""
    field = spec.model_fields.get(setting)
    return field is not None and {int} == set(_plain_types(field.annotation)) - {NoneType}


def _plain_types(annotation: Any) -> Iterator[Any]:
    """Member types of an annotation's unions, without element types of lists and maps."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _plain_types(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _plain_types(part)
    else:
        yield annotation


def is_off(value: Any) -> bool:
    """Whether a setting is off: null, zero, false or empty. `Field(exclude_if=is_off)` then omits it from plain
    data."""
    return not value


def number(setting: Number | None) -> Number:
    """The value of a setting that may be null until the spec is resolved. Raises TypeError if it is null."""
    if setting is None:
        raise TypeError("the spec is not resolved: `resolve(d_model)` turns its defaults into numbers")
    return setting


class Variant(Spec):
    """A spec that is one choice on an axis. Each variant's file narrows `kind` to the file's name."""

    examples: ClassVar[Examples] = ({},)
    """Settings with which tests combine the variant with every choice of the other axes, in a model of d_model 24 with
    4 heads of 6 features. Override if the defaults are too large, skip a code path, or do not exist."""

    paired_examples: ClassVar[int | None] = None
    """Number of examples, the first ones, whose pairs with other choices the default tests check; the slow tests check
    the pairs of all examples. None for all. 0 suits a variant built from parts of other variants: the default tests
    then check each of its examples in two models."""

    requires: ClassVar[Edits] = {}
    """Edits by path that a model needs before it can have the variant."""

    headings: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Names of settings by the heading that they are listed under, where they are too many for one list. Names that are
    no settings are passed over, so that subclasses share headings; settings without one come last."""

    kind: str
    """Name of the variant, equal to its file's name; a bare name is short for `{kind: name}`."""


def variants(axis: str, tag: str = "kind") -> dict[str, type[Spec]]:
    """Variants of an axis package (`"zoo.norms"`), keyed by their `tag` field, in alphabetical order. Raises
    PluginError for a file without a complete variant, and for a plug-in without exactly one of its name."""
    found: dict[str, type[Spec]] = {}
    for name in members(axis):
        module = member(axis, name)
        for kind, cls in _variants_of(module, name, tag, name in plugins_of(axis)).items():
            if kind in found:
                raise PluginError(f"{called(module)}: the name {kind} is already used in {axis}: choose another")
            found[kind] = cls
    return dict(sorted(found.items()))


@functools.cache
def _variants_of(module: ModuleType, name: str, tag: str, alone: bool) -> dict[str, type[Spec]]:
    """The variant that a file is named after, or else all that it defines, by name. alone: it must be the former."""
    specs = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Spec)]
    own = [cls for cls in specs if kind_of(cls, tag) == name]
    if not own and not alone:
        own = [cls for cls in specs if kind_of(cls, tag) and cls.__module__ == module.__name__]
    found = {str(kind_of(cls, tag)): cls for cls in own}
    if not own or len(found) < len(own):
        raise PluginError(f"{called(module)}: expected one spec with {tag}: Literal['{name}'], found {len(own)}")
    for cls in own:
        if lacking := sorted(cls.__abstractmethods__):
            raise PluginError(f"{called(module)}: {cls.__name__} lacks {', '.join(lacking)}")
    return found


def axis_of(variant: type[Variant]) -> str:
    """Package of a variant's axis, which defines the base class of all its variants."""
    return [cls.__module__ for cls in variant.__mro__ if issubclass(cls, Variant) and cls is not Variant][-1]


def kind_of(cls: type[BaseModel], tag: str = "kind") -> str | None:
    """The kind that a spec class fixes in its `tag` field; None for a base class."""
    field = cls.model_fields.get(tag)
    kinds = get_args(field.annotation) if field is not None else ()
    return kinds[0] if kinds else None


@dataclass(frozen=True)
class Choice:
    """Field annotation for a variant of an axis, given as a spec, as a map with `kind`, or as the bare kind.

    tag: the discriminator field, if it is not `kind`.
    pydantic's error locations add the kind to the field's path; `zoo.settings.explain` removes it.
    """

    axis: str
    tag: str = "kind"

    def variants(self) -> dict[str, type[Spec]]:
        """The axis's variants, by name."""
        return variants(self.axis, self.tag)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        members = tuple(Annotated[cls, Tag(name)] for name, cls in self.variants().items())
        # The members are known only at run time, so a type checker cannot read `Union[...]`.
        union: Any = Union.__getitem__(members)
        return handler.generate_schema(Annotated[union, Discriminator(self._tag_of), BeforeValidator(self._named)])

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": list(variants(self.axis, self.tag))}, handler(schema)]}

    def _named(self, value: Any) -> Any:
        """`"rmsnorm"` means `{kind: rmsnorm}`."""
        return {self.tag: value} if isinstance(value, str) else value

    def _tag_of(self, value: Any) -> str | None:
        return value.get(self.tag) if isinstance(value, dict) else getattr(value, self.tag, None)
