"""Conversion of pydantic's errors to SpecErrors with the user's path, one reason, and a suggestion for a typo."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from zoo.errors import Kind, SpecError, did_you_mean
from zoo.settings.axis import Choice, Variant, axis_of, kind_of, variants

KINDS: dict[str, Kind] = {
    "extra_forbidden": "unknown_key",
    "union_tag_invalid": "unknown_choice",
    "literal_error": "unknown_choice",
}
"""pydantic's error types → the error kinds that programs distinguish."""
WORDING = (
    (r"^[Ii]nput should be ", "must be "),
    (r"\ba valid (dictionary or instance of \w+|dictionary)", "a map"),
    (r"\ba valid (list|tuple)", "a list"),
    (r"\ba valid integer", "a whole number"),
    (r"\ba valid number", "a number"),
    (r"\ba valid boolean", "true or false"),
    (r"\ba valid string", "text"),
)
"""Patterns of pydantic's wording → words that fit a YAML file."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
LONGEST = 60
"""Maximum number of characters of a value in a message."""

Checked = TypeVar("Checked", bound=BaseModel)


def checked(model: type[Checked], data: Mapping[str, object]) -> Checked:
    """`data` validated as `model`. Raises SpecError for the first error."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise explain(error, model)[0] from None


def explain(error: ValidationError, model: type[BaseModel]) -> list[SpecError]:
    """One SpecError per validation error of data for `model`, in the order of the fields."""
    found = []
    for details in details_of(error):
        keys, owner = _walk(details["loc"], model)
        path, cause = ".".join(keys), details.get("ctx", {}).get("error")
        if isinstance(cause, SpecError):
            found.append(cause.under(path))
        else:
            found.append(SpecError(path, _reason(details, keys, owner), KINDS.get(details["type"], "illegal")))
    return found


def details_of(error: ValidationError) -> list[ErrorDetails]:
    """pydantic's errors without duplicates: a list with an invalid item is not also reported as too short."""
    found = error.errors(include_url=False)
    around = {details["loc"][:-1] for details in found}
    return [details for details in found if details["type"] != "too_short" or details["loc"] not in around]


def _reason(details: ErrorDetails, keys: list[str], owner: type[BaseModel] | None) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(keys[-1], owner)
    if kind == "union_tag_invalid":
        return unknown_variant("kind", context["tag"], re.findall(r"'([^']*)'", context["expected_tags"]))
    if kind == "literal_error" and owner is not None and issubclass(owner, Variant):
        value = str(details["input"])
        if value in variants(axis_of(owner)):  # `kind: mlp, activation: relu`
            return f"unknown {keys[-1]} '{value}': it is a kind of its own (write `kind: {value}`)"
    if kind == "union_tag_not_found":
        field = owner.model_fields.get(keys[-1]) if owner else None
        choice = choice_of(field) if field else None
        tag = choice.tag if choice else "kind"
        return f"must be a {tag}, or a map with the key '{tag}'"
    return reason(details, keys[-1] if keys else "value")


def reason(details: ErrorDetails, key: str) -> str:
    """Reason of an error that concerns only the value of `key`, in words that fit a YAML file."""
    kind, given = details["type"], details["input"]
    if kind == "missing":
        return "is missing"
    if kind == "literal_error":
        return unknown(key, given, re.findall(r"'([^']*)'", details["ctx"]["expected"]))
    if kind == "too_short":
        return "needs at least one"
    message = details["msg"].removeprefix("Value error, ")
    for pattern, words in WORDING:
        message = re.sub(pattern, words, message)
    if message.split(" ")[0].istitle():
        message = message[:1].lower() + message[1:]
    is_scalar = isinstance(given, str | int | float | bool) or given is None
    shows = is_scalar and yaml(given) not in message if kind == "value_error" else True
    if kind.startswith(("float_", "int_")) and isinstance(given, str) and NUMBER.fullmatch(given):
        return f"{message}, not the text {yaml(given)} (remove quotes; PyYAML needs a point and a sign, as in 1.0e-3)"
    return f"{message}, not {yaml(given)}" if shows else message


def unknown(what: str, word: object, known: Sequence[str]) -> str:
    """`unknown kind 'bpee' (did you mean 'bpe'?)`; without a close match, a list of all known words."""
    return f"unknown {what} {yaml(word)}" + (did_you_mean(str(word), known) or f": one of {', '.join(known)}")


def unknown_variant(tag: str, word: object, known: Sequence[str]) -> str:
    """`unknown` for a variant. Without a close match the message suggests a plug-in that was not loaded."""
    near = did_you_mean(str(word), known)
    return unknown(tag, word, known) + ("" if near else " (a plug-in's? give --plugin FILE)")


def yaml(value: Any) -> str:
    """A value as YAML would write it, truncated to `LONGEST` characters."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _unknown(key: str, owner: type[BaseModel] | None) -> str:
    """Reason for an unknown key: a setting of another variant of the axis, a setting of a nested part, or a typo."""
    kind = kind_of(owner) if owner else None
    if owner is not None and issubclass(owner, Variant) and kind is not None:
        siblings = variants(axis_of(owner))
        having = [name for name, variant in siblings.items() if key in variant.model_fields]
        if having:
            return f"not a setting of {kind}, but of {', '.join(having)}"
    below = _below(key, owner) if owner else None
    return "unknown key" + (
        f" (did you mean '{below}'?)" if below else did_you_mean(key, owner.model_fields if owner else ())
    )


def _below(key: str, owner: type[BaseModel]) -> str | None:
    """Path of a nested part's setting with this name, such as `mixer.window` for `window` in a block; None if none."""
    inner: list[tuple[str, type[BaseModel]]] = []
    for name, field in owner.model_fields.items():
        choice, model = choice_of(field), _model_of(field.annotation)
        inner += [(name, each) for each in (choice.variants().values() if choice else [model] if model else [])]
    direct = next((f"{name}.{key}" for name, part in inner if key in part.model_fields), None)
    if direct or key == "kind":
        return direct
    return next((f"{name}.{path}" for name, part in inner for path in [_below(key, part)] if path), None)


def _walk(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[list[str], type[BaseModel] | None]:
    """The user's path for a pydantic location, without its union members, and the class that owns the last key."""
    keys: list[str] = []
    owner: type[BaseModel] | None = model
    inside: type[BaseModel] | None = model
    choice: Choice | None = None
    for part in map(str, location):
        chosen = choice.variants().get(part) if choice is not None else None
        if chosen is not None:
            inside, choice = chosen, None
            continue
        keys.append(part)
        owner = inside
        field = owner.model_fields.get(part) if owner else None
        choice = choice_of(field) if field else None
        inside = _model_of(field.annotation) if field else None
    return keys, owner


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The model class in a field's annotation, also in `EncoderSpec | None`."""
    members = (annotation, *get_args(annotation))
    return next((each for each in members if isinstance(each, type) and issubclass(each, BaseModel)), None)


def choice_of(field: FieldInfo) -> Choice | None:
    """The `Choice` in a field's annotation, also in `Annotated[Norm, Choice(…)] | None`."""
    parts = getattr(field.annotation, "__args__", ())
    members = [extra for member in parts for extra in getattr(member, "__metadata__", ())]
    return next((extra for extra in [*field.metadata, *members] if isinstance(extra, Choice)), None)
