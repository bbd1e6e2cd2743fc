"""The JSON Schema of a study file, so that editors complete and check it, and the place where a mistaken key belongs.

That is another section, or this project's name for the key.

Edits may be nested or dotted and may name only what they change, so the schema of a spec becomes the schema of its
edits: nothing is required, and `block.mixer.kv_heads` is a key beside `block`.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from ablate.study.arms import SECTIONS
from ablate.study.complaints import Problem, Schema, members
from ablate.study.scales import shipped_scales
from ablate.study.sections import StudySections
from ablate.study.sources import PRESET, base_kinds
from ablate.study.yamlfile import StudyMap
from store.paths import NAME
from zoo.presets import names, sized_names
from zoo.spec import ModelSpec
from zoo.vocabulary import names_for

TAGS = ("kind", "source")
"""Fields that name a variant."""
SCALES = "Edits of the study by name, one of which `--scale` chooses: budgets, seeds and sizes for a machine."


class _Generator(GenerateJsonSchema):
    def encode_default(self, dft: Any) -> Any:
        """Return plain values as they are: pydantic would build a serializer for each of a thousand."""
        return dft if dft is None or type(dft) in (bool, int, float, str) else super().encode_default(dft)


def study_schema() -> Schema:
    """The JSON Schema (2020-12) of study files, with every variant and setting of this installation.

    Returns:
        A document for editors, which read it if `# yaml-language-server: $schema=FILE` is a study's first line.

    Example:
        >>> Path("study.schema.json").write_text(json.dumps(ablate.study_schema()))
    """
    specs: list[type[BaseModel]] = [StudySections, ModelSpec, *SECTIONS.values()]
    schemas, shared = models_json_schema([(spec, "validation") for spec in specs], schema_generator=_Generator)
    definitions = shared["$defs"]
    sections = definitions["StudySections"]
    model_edits, *of_arms = (_edits([schemas[spec, "validation"]], definitions) for spec in specs[1:])
    beside = dict(zip(SECTIONS, of_arms, strict=True))
    own = {path: schema for section, edits in beside.items() for path, schema in _below(section, edits).items()}
    arm = _object({**model_edits["properties"], **own}, _free(model_edits))
    named: Schema = {key: {"type": "string", "description": base.description} for key, base in base_kinds().items()}
    named["preset"] = {"enum": [*names(), *sized_names()], "description": PRESET.description}
    base = _object({**named, **model_edits["properties"]}, _free(model_edits))
    maps = [key for key, field in StudySections.model_fields.items() if field.annotation == dict[str, StudyMap]]
    by_path = {"base": base, **dict.fromkeys(maps, _named(arm)), "grid": _grid(arm)}
    of_a_study = {key: edits for key, edits in by_path.items() if key in sections["properties"]}
    texts = {key: sections["properties"].pop(key)["description"] for key in of_a_study}
    study = _edits([sections], definitions)
    properties, patterns = study["properties"], dict(_free(study))
    for key, edits in of_a_study.items():
        properties |= _below(key, {**edits, "description": texts[key]})
        patterns |= _free_below(key, edits)
    usual = {name: {"description": scale.about} for name, scale in shipped_scales().items()}  # editors suggest them
    scales = {**_named(_object(properties, patterns)), "properties": usual, "description": SCALES}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A study",
        "description": StudySections.__doc__,
        **_once(_object({**properties, "scales": scales}, patterns)),
        "required": ["question"],
    }


def _once(schema: Schema) -> Schema:
    """The schema with shared subschemas moved to `$defs`, since every nested setting is a dotted key, too. Top-level
    keys stay in place."""
    seen = Counter[int]()
    _count(schema, seen)
    definitions: dict[int, tuple[str, Schema]] = {}

    def shared(inner: Schema) -> Schema:
        if seen[id(inner)] == 1 or not inner:
            return parted(inner)
        if id(inner) not in definitions:
            body = parted(inner)
            definitions[id(inner)] = (f"s{len(definitions)}", body)
        return {"$ref": f"#/$defs/{definitions[id(inner)][0]}"}

    def parted(whole: Schema) -> Schema:
        return {**whole, **{word: {key: shared(inner) for key, inner in whole[word].items()} for word in _maps(whole)}}

    found = {**schema, **{word: {key: parted(inner) for key, inner in schema[word].items()} for word in _maps(schema)}}
    return {**found, "$defs": dict(definitions.values())}


def _maps(schema: Schema) -> list[str]:
    """The keywords of a schema that have schemas by key."""
    return [word for word in ("properties", "patternProperties") if word in schema]


def _count(schema: Schema, seen: Counter[int]) -> None:
    """Count how often each schema object occurs inside another."""
    seen[id(schema)] += 1
    if seen[id(schema)] == 1:
        for word in _maps(schema):
            for inner in schema[word].values():
                _count(inner, seen)


def _object(properties: Schema, patterns: Schema) -> Schema:
    closed: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**closed, "patternProperties": patterns} if patterns else closed


def _named(value: Schema) -> Schema:
    """Schema of a map by name; dotted keys start with a name."""
    patterns = {f"^{NAME.pattern}$": value, f"^{NAME.pattern}\\..+": {}}
    return {"type": "object", "patternProperties": patterns, "additionalProperties": False}


def _grid(arm: Schema) -> Schema:
    """Schema of lists of values by dotted path."""
    axes = {path: {"type": "array", "minItems": 1} for path in arm["properties"]}
    return _object(axes, {pattern: {"type": "array", "minItems": 1} for pattern in _free(arm)})


def _edits(schemas: list[Schema], definitions: Schema) -> Schema:
    """The schema of edits of a value that fits any of these schemas."""
    every = list(members(schemas, definitions))
    maps = [each for each in every if each.get("type") == "object"]
    others = [_inline(each, definitions) for each in every if each.get("type") != "object"]
    if not maps:
        return others[0] if len(others) == 1 else {"anyOf": _unique(others)}
    properties: Schema = {}
    patterns: Schema = {}
    for key in dict.fromkeys(key for each in maps for key in each.get("properties", {})):
        given = [each["properties"][key] for each in maps if key in each.get("properties", {})]
        inner = _edits(given, definitions)
        properties |= {**_below(key, inner), key: {**inner, **_description(key, maps)}}
        patterns |= _free_below(key, inner)
    if any(each.get("additionalProperties") for each in maps):
        patterns["^.+"] = {}
    whole = _object(properties, patterns)
    return {**whole, "anyOf": [*_unique(others), {"type": "object"}]} | {"type": _types(others)} if others else whole


def _description(key: str, maps: list[Schema]) -> Schema:
    """Description of a setting; that of each variant, if variants describe settings of this name differently."""
    said: dict[str, list[str]] = {}
    for each in maps:
        if text := each.get("properties", {}).get(key, {}).get("description"):
            tags = (each["properties"].get(tag, {}).get("const") for tag in TAGS)
            said.setdefault(text, []).append(next(filter(None, tags), "otherwise"))
    if len(said) < 2 or key in TAGS:
        return {"description": next(iter(said))} if said else {}
    return {"description": " ".join(f"{', '.join(of)}: {text}" for text, of in said.items())}


def _below(key: str, edits: Schema) -> Schema:
    """A setting and, under dotted keys, every setting inside it."""
    return {key: edits, **{f"{key}.{path}": inner for path, inner in edits.get("properties", {}).items()}}


def _free_below(key: str, edits: Schema) -> Schema:
    """The patterns of dotted keys that start with `key`."""
    return {f"^{key}\\.{pattern.removeprefix('^')}": value for pattern, value in _free(edits).items()}


def _free(schema: Schema) -> Schema:
    patterns: Schema = schema.get("patternProperties", {})
    return patterns


def _inline(schema: Schema, definitions: Schema) -> Schema:
    """A schema of plain values or lists, without references."""
    if "items" in schema:
        inside = [_inline(each, definitions) for each in members([schema["items"]], definitions)]
        return {**schema, "items": {"anyOf": inside}}
    return schema


def _unique(schemas: list[Schema]) -> list[Schema]:
    return [schema for i, schema in enumerate(schemas) if schema not in schemas[:i]]


def _types(schemas: list[Schema]) -> list[str]:
    words = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    found = [
        schema.get("type") or [words[type(v)] for v in schema.get("enum", [schema.get("const")])] for schema in schemas
    ]
    flat = [word for each in found for word in (each if isinstance(each, list) else [each])]
    return list(dict.fromkeys([*flat, "object"]))


LOOKED_UP = ("train", "base", "budget", "data", "tune", "measure", "evals", "search")
"""Sections in the order in which a setting is looked up; `base.block` comes next, then deeper settings."""
ELSEWHERE = {
    "seed": "seeds",
    "model": "base",
    **dict.fromkeys(("steps", "max_steps", "num_steps", "n_steps", "iterations", "max_iters"), "budget.tokens"),
    **dict.fromkeys(("epochs", "n_epochs", "num_epochs", "num_train_epochs", "max_tokens"), "budget.tokens"),
}
"""Settings of other tools, and their equivalents here."""
PARTS = ("ffn", "mixer")
"""Parts of a block in the order in which a setting is looked up; others come after them."""
COMMON = ("kind", "name", "source")
"""Names of settings that many parts have: too ambiguous for a hint."""


@functools.cache
def _paths() -> tuple[str, ...]:
    """Paths of all settings of sections. Cached, since the schema takes longer than the study."""
    return tuple(path for path in study_schema()["properties"] if path.split(".")[0] in LOOKED_UP)


def with_remedy(problem: Problem) -> Problem:
    """The problem of an unknown key; if another section has the key, it suggests the path there."""
    if problem.kind != "unknown_key":
        return problem
    said = re.fullmatch(r"unknown key(?: \(did you mean '(.*)'\?\)|: one of .*)?", problem.reason)
    root = r"(?:scales\.[^.]+\.)?(?:(base|arms\.[^.]+|search\.space)\.)?"
    place = re.fullmatch(root + r"((?:\w+\.)*)(\w+)", problem.path)
    if said is None or place is None:
        return problem
    around, key, near = place[2].split(".")[:-1], place[3], said[1] and said[1].rpartition(".")[2]
    section = around[0] if around[:1] and around[0] in LOOKED_UP else "base" if place[1] else None
    if around and section is None:
        return problem
    if near and (around or near == key or near in names_for(key)):
        return problem
    # inside a part, only settings of the section around it are meant
    is_inside = len(around) > 1 or (around and section == "base")
    home = home_of(key, [path for path in _paths() if path.split(".")[0] == section] if is_inside else _paths())
    if home is None or home == problem.path:
        return problem
    home = home.removeprefix("base.") if place[1] and place[1] != "base" else home
    return replace(problem, reason=f"unknown key (did you mean '{home}'?)")


def home_of(key: str, paths: Iterable[str]) -> str | None:
    """The path that ends in a key, or in this project's name for it; None if there is none, or the key is ambiguous."""
    if key in COMMON or key in ELSEWHERE:
        return ELSEWHERE.get(key)
    names = {key, *names_for(key)}
    found = [path for path in paths if "." in path and path.rpartition(".")[2] in names]
    return min(found, key=_distance, default=None)


def _distance(path: str) -> tuple[int, int, int]:
    """Sort key: settings of a section itself come first, then those of blocks."""
    section, *inner = path.split(".")
    if section == "base" and inner[0] == "block" and len(inner) > 1:
        return 1, len(inner), PARTS.index(inner[1]) if inner[1] in PARTS else len(PARTS)
    return 2 * (len(inner) > 1), len(inner), LOOKED_UP.index(section)
