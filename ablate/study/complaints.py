"""pydantic's validation errors for a section of a study, as problems at the paths that the user wrote."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from store import AblateError
from zoo.errors import Kind, did_you_mean
from zoo.settings import explain

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema, of which only a few keywords are read."""


class Complaint(NamedTuple):
    """A problem at a path: `reason` in words, `kind` for programs."""

    path: tuple[str, ...]
    reason: str
    kind: Kind


@functools.cache
def _schema_of(spec: type[BaseModel]) -> Schema:
    """JSON Schema of a class. Cached, since it takes pydantic longer than all else that explains an error."""
    return spec.model_json_schema()


def complaints(error: ValidationError, data: Any, spec: type[BaseModel]) -> Iterator[Complaint]:
    """The problems of `data`, which is not a valid `spec`."""
    schema = _schema_of(spec)
    found: dict[tuple[tuple[str, ...], Kind], list[str]] = {}
    for details in explain.details_of(error):
        path = user_path(details["loc"], data, missing=details["type"] == "missing")
        if details["type"] in ("union_tag_invalid", "union_tag_not_found"):
            path, reason = _choice(details, path)
        elif details["type"] == "extra_forbidden":
            reason = "unknown key" + _hint(path, data, schema)
        else:
            reason = explain.reason(details, path[-1] if path else "value")
            reason = _with_words(reason, path, data, schema) if "must be a map" in reason else reason
        found.setdefault((path, explain.KINDS.get(details["type"], "illegal")), []).append(reason)
    for (path, kind), reasons in found.items():
        yield from (Complaint(path, reason, kind) for reason in _alternatives(reasons))


def _with_words(reason: str, path: tuple[str, ...], data: Any, schema: Schema) -> str:
    """Add the words that a setting accepts besides a map: `must be a map or null, not 'no'`."""
    schemas, _ = _at(schema, path, data)
    words = [
        word for member in members(schemas, schema.get("$defs", {})) for word in WORDS.get(str(member.get("type")), ())
    ]
    *legal, last = dict.fromkeys(["a map", *words])
    return reason.replace("a map", f"{', '.join(legal)} or {last}", 1) if legal else reason


WORDS = {"null": ("null",), "boolean": ("true", "false")}
"""Words that a YAML value of a JSON Schema type may be."""


def members(schemas: Iterable[Schema], definitions: Schema) -> Iterator[Schema]:
    """The schemas with references and unions resolved."""
    for schema in schemas:
        inner = [each for union in ("anyOf", "oneOf", "allOf") for each in schema.get(union, [])]
        if "$ref" in schema:
            inner.append(definitions[schema["$ref"].rpartition("/")[2]])
        yield from members(inner, definitions) if inner else [schema]


def _alternatives(reasons: Sequence[str]) -> Sequence[str]:
    """Reasons of a union's members for one value, joined if each has the form `must be …, not …`."""
    parts = [re.fullmatch(r"must be (.*?)(, not .*)", reason, re.DOTALL) for reason in dict.fromkeys(reasons)]
    known = [part for part in parts if part]
    if len(known) < len(parts) or len({part[2] for part in known}) > 1:
        return reasons
    return [f"must be {' or '.join(part[1] for part in known)}{known[0][2]}"]


def _choice(details: ErrorDetails, path: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Path and reason for a variant that is missing or unknown."""
    tag, given = "source" if path[-1:] == ("data",) else "kind", details["input"]
    if details["type"] == "union_tag_not_found":
        words = [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else []
        needs = "needs" if isinstance(given, Mapping) else "must be a map with"
        return path, f"{needs} the key {tag}{_as_data(words) if tag == 'source' else ''}"
    word, known = details["ctx"]["tag"], re.findall(r"'([^']*)'", details["ctx"]["expected_tags"])
    inside = (tag,) if isinstance(given, Mapping) else ()
    if tag == "source" and (remedy := _as_data([word])):
        return (*path, *inside), f"unknown source {explain.yaml(word)}{remedy}"
    return (*path, *inside), explain.unknown_variant(tag, word, known)


def _as_data(words: Sequence[Any]) -> str:
    """Advice on writing paths, or a dataset of the hub, as data; empty if the words look like neither."""
    if not words or not all(isinstance(word, str) and re.search(r"[/\\*~]|\.\w+$", word) for word in words):
        return ""
    of_hub = len(words) == 1 and re.fullmatch(r"[A-Za-z0-9][\w-]*/[\w-]+", words[0])
    source = "tokens" if words[0].endswith((".bin", ".npy")) else "files"
    quoted = (word if re.fullmatch(r"[\w./][\w./-]*", word) else json.dumps(word, ensure_ascii=False) for word in words)
    paths = f"{{source: {source}, paths: [{', '.join(quoted)}]}}"
    hub = f", or `data: {{source: hf, path: {words[0]}}}` for a dataset on the Hugging Face Hub" if of_hub else ""
    return f": write `data: {paths}`{hub}"


def user_path(location: tuple[str | int, ...], data: Any, *, missing: bool) -> tuple[str, ...]:
    """pydantic's location without the union members that it inserts. missing: the last part is an absent key."""
    keys: list[str] = []
    here = data
    for i, part in enumerate(location):
        following = location[i + 1] if i + 1 < len(location) - missing else None
        if following is not None and _has(here, part) and _has(here, following) and not _has(here[part], following):
            continue  # the name of a union's member, rather than the key of that name beside the key `following`
        if _has(here, part):
            here = here[part]
        elif not (missing and i == len(location) - 1):
            continue
        keys.append(str(part))
    return tuple(keys)


def _has(here: Any, part: str | int) -> bool:
    if isinstance(here, Mapping):
        return part in here
    return isinstance(here, list | tuple) and isinstance(part, int) and part < len(here)


FEW_KEYS = 8
"""Most choices that a message lists."""


def _hint(path: tuple[str, ...], data: Any, schema: Schema) -> str:
    """A hint for an unknown key: the kinds that have it, else the nearest known key."""
    *around, key = path
    branches, here = _at(schema, tuple(around), data)
    own = list(_branches(branches, schema, here))
    others = [branch for branch in _branches(branches, schema, None) if branch not in own]
    having = [name for branch in others if key in branch["properties"] for name in _kinds(branch)]
    if having:
        return f" (a setting of {' and '.join(having)}, not of {' or '.join(k for b in own for k in _kinds(b))})"
    known = list(dict.fromkeys(name for branch in own for name in branch["properties"]))
    return did_you_mean(key, known) or (f": one of {', '.join(known)}" if 0 < len(known) <= FEW_KEYS else "")


def _kinds(branch: Schema) -> list[str]:
    return [value["const"] for value in branch["properties"].values() if "const" in value]


def _at(schema: Schema, path: tuple[str, ...], data: Any) -> tuple[list[Schema], Any]:
    """The JSON Schemas at a path of `data`, with references and unions unresolved, and the data there."""
    branches, here = [schema], data
    for part in path:
        if isinstance(here, list | tuple):
            lists = members(branches, schema.get("$defs", {}))
            branches, here = [each["items"] for each in lists if "items" in each], here[int(part)]
            continue
        inside = [branch["properties"].get(part) for branch in _branches(branches, schema, here)]
        branches = [branch for branch in inside if branch is not None]
        here = here.get(part) if isinstance(here, Mapping) else None
    return branches, here


def _branches(schemas: Iterable[Schema], root: Schema, here: Any) -> Iterator[Schema]:
    """The object schemas with references and unions resolved, without the members that `here` excludes."""
    for schema in members(schemas, root.get("$defs", {})):
        if "properties" in schema:
            fixed = {key: value["const"] for key, value in schema["properties"].items() if "const" in value}
            if not isinstance(here, Mapping) or all(here.get(key, value) == value for key, value in fixed.items()):
                yield schema


# Problems of a study, with the places where the user wrote them.


@dataclass(frozen=True)
class Place:
    """A position in a file (1-based line and column), or a source without positions, such as `--set lr=1`."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """A problem. `path` is dotted, as the user wrote it, and empty for the whole file; `kind` is for programs."""

    place: Place
    path: str
    reason: str
    kind: Kind = "illegal"

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.place), self.path, self.reason) if part)


class StudyError(AblateError, ValueError):
    """A study that cannot be planned. The message has one line per problem, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        unique = dict.fromkeys(problems)
        self.problems = tuple(sorted(unique, key=lambda p: (p.place.line or 0, p.place.column or 0)))
        super().__init__("\n".join(map(str, self.problems)))
