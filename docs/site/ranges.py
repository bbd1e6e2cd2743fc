"""Allowed values of a setting, in a few words, from its JSON Schema: integer ≥ 1, number in (0, 1], `pre`, `post`."""

from __future__ import annotations

from collections.abc import Iterator

from ablate.study.complaints import Schema, members
from zoo.settings.axis import MOST_WHOLE, Spec

MOST_NAMES = 12
"""Length of the longest list of choices that is shown in full; of a longer one, half as many are shown."""
TYPES = {"string": "text", "object": "map", "boolean": "`true`, `false`", "null": "`null`"}


def ranges_of(cls: type[Spec]) -> dict[str, str]:
    """Allowed values of each setting of a class, by name."""
    schema = cls.model_json_schema()
    definitions = schema.get("$defs", {})
    return {name: in_words(each, definitions) for name, each in schema.get("properties", {}).items()}


def in_words(schema: Schema, definitions: Schema) -> str:
    """Values that a schema allows, in words; `null` comes last."""
    words = list(dict.fromkeys(_words(schema, definitions)))
    return ", ".join(sorted(words, key=lambda word: word == TYPES["null"])) or "any"


def _words(schema: Schema, definitions: Schema) -> Iterator[str]:
    for each in members([schema], definitions):
        kinds = each.get("type", ())
        if "const" in each or "enum" in each:
            yield from _names(each.get("enum", [each.get("const")]))
        else:
            yield from (_typed(kind, each, definitions) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _names(values: list[object]) -> Iterator[str]:
    shown = values if len(values) <= MOST_NAMES else values[: MOST_NAMES // 2]
    yield from (f"`{'null' if value is None else value}`" for value in shown)
    if len(shown) < len(values):
        yield f"… ({len(values)} in all)"


def _typed(kind: str, schema: Schema, definitions: Schema) -> str:
    if kind in ("integer", "number"):
        return f"{kind} {_bounds(schema)}".rstrip()
    if kind == "array":
        inside = schema.get("items") or {"anyOf": schema.get("prefixItems", [])}
        return f"list of {in_words(inside, definitions)}"
    return TYPES[kind]


def _bounds(schema: Schema) -> str:
    ends = (schema.get(end, schema.get(f"exclusive{end.title()}")) for end in ("minimum", "maximum"))
    low, high = (None if end is not None and abs(end) == MOST_WHOLE else end for end in ends)  # any that a run can hold
    above, below = "exclusiveMinimum" in schema, "exclusiveMaximum" in schema
    if low is not None and high is not None:
        return f"in {'(' if above else '['}{low:,}, {high:,}{')' if below else ']'}"
    if low is not None:
        return f"{'>' if above else '≥'} {low:,}"
    return "" if high is None else f"{'<' if below else '≤'} {high:,}"
