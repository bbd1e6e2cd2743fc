"""YAML 1.2 (core schema) with the position of every key and value.

ruamel.yaml scans, parses and composes; this module resolves the types of plain scalars (YAML 1.2.2, §10.3.2) and
records positions. So `1e-3` is a float, `off` and `2001-01-01` are strings, and a key given twice is an error.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.resolver import BaseResolver

from ablate.study.complaints import Place, Problem, StudyError

type_prefix = "tag:yaml.org,2002:"
MAX_BYTES = 1_000_000
MAX_NODES = 100_000
MAX_DEPTH = 50

StudyMap: TypeAlias = dict[str, Any]
"""A study or a part of one as written, not yet validated: maps with text keys, lists and scalars."""
Keys = tuple[str | int, ...]
"""Keys and list positions from the root, keys as written (`"block.norm"` is one)."""


class _CoreSchema(BaseResolver):
    """The types of plain scalars in YAML 1.2, whatever a `%YAML` directive says."""

    processing_version = (1, 2)

    def __init__(self, version: object = None, loader: object = None) -> None:
        super().__init__(loader)


PLAIN_SCALARS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
    ("merge", r"<<", ["<"]),
)
"""Tag of each type, pattern of its plain scalars, and their possible first characters."""
for _tag, _pattern, _first in PLAIN_SCALARS:
    _CoreSchema.add_implicit_resolver_base(type_prefix + _tag, re.compile(f"^(?:{_pattern})$"), _first)


NO_COLON = "could not find expected ':'"
REMEDIES = (
    (NO_COLON, "write `key: value`, with a space after the colon"),
    ("but got ':'", "close the bracket above, or quote text that contains a colon"),
    ("mapping values are not allowed", 'quote text that contains a colon, "like: this"'),
    ("cannot start any token", "quote text that begins with this character"),
    ("undefined alias", "quote text that begins with *"),
    ("mapping keys are not allowed", "quote text that begins with ?"),
    ("sequence entries are not allowed", "begin a list on the next line, or quote text that begins with -"),
    ("found '<scalar>'", "quote the whole value, or none of it"),
)
"""Usual remedies, by a part of the parser's message."""


@dataclass(frozen=True)
class YamlDocument:
    """Plain data, with the place of each key and value."""

    data: Any
    keys: dict[Keys, Place] = field(repr=False)
    values: dict[Keys, Place] = field(repr=False)


def read_yaml(path: Path) -> YamlDocument:
    """The document in a file. Raises `StudyError` if it is not one YAML 1.2 document."""
    return parse_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a file. Raises `StudyError` if it cannot be read, is too large or is not UTF-8."""
    # A shell's `<(…)` is a pipe, too, but this process has it open already.
    if path.is_fifo() and str(path.parent) not in ("/dev/fd", "/proc/self/fd"):
        raise _error(Place(str(path)), "is a pipe, which could block: give a regular file")
    try:
        with path.open("rb") as file:  # a device or a pipe has no size, and may have no end
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _error(Place(str(path)), f"cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise _error(Place(str(path)), f"too large for a study: at most {MAX_BYTES} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        place = Place(str(path), before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise _error(place, f"not UTF-8 text (byte 0x{raw[error.start]:02x})") from error


def parse_yaml(text: str, source: str) -> YamlDocument:
    """Parse text like `read_yaml`; `source` is its name in messages."""
    node = _compose(text, source)
    if node is None:
        return YamlDocument(None, {}, {(): Place(source, 1, 1)})
    return _Reading(source).document(node)


def _compose(text: str, source: str) -> Node | None:
    reader = YAML(typ="safe", pure=True)
    reader.Resolver = _CoreSchema
    reader.composer.warn_double_anchors = False  # YAML allows an anchor to be defined again
    try:
        return reader.compose(text)  # type: ignore[no-any-return]
    except MarkedYAMLError as error:
        reason = " ".join((error.problem or error.context or "cannot be parsed").split())
        mark = error.problem_mark or error.context_mark
        if reason == NO_COLON and error.context_mark:  # the parser notices only after the line
            mark = error.context_mark
        place = Place(source) if mark is None else Place(source, mark.line + 1, mark.column + 1)
        lines = [] if mark is None else text.split("\n")[mark.line : mark.line + 1]
        before = "".join(line[: mark.column] for line in lines)
        raise _error(place, f"not YAML: {_with_remedy(reason, before)}") from error
    except ReaderError as error:
        before = text[: error.position]
        place = Place(source, before.count("\n") + 1, error.position - before.rfind("\n"))
        raise _error(place, "not YAML: a control character") from error
    except (YAMLError, ValueError) as error:
        raise _error(Place(source), f"not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise _error(Place(source), "nested too deeply") from error


def _with_remedy(reason: str, before: str) -> str:
    """A parser's message with its usual remedy. before: the line up to the error."""
    if "'\\t'" in reason:
        return "tab in the indentation: use spaces"
    remedy = next((remedy for part, remedy in REMEDIES if part in reason), None)
    if "mapping values are not allowed" in reason and not re.search(r":\s", before):
        remedy = "indent all keys of a map equally, and quote text that contains a colon"
    return f"{reason}: {remedy}" if remedy else reason


def _error(place: Place, reason: str, path: str = "") -> StudyError:
    return StudyError([Problem(place, path, reason)])


def is_empty(node: Node) -> bool:
    """Whether a value is missing. Parsers give it the position of the next token."""
    return isinstance(node, ScalarNode) and str(node.tag) == type_prefix + "null" and not node.value


class _Reading:
    """One walk over a node tree, with bounded work, since aliases can make a small file describe a huge tree."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.keys: dict[Keys, Place] = {}
        self.values: dict[Keys, Place] = {}
        self.nodes = 0
        self.depth = 0

    def document(self, root: Node) -> YamlDocument:
        return YamlDocument(self.value(root, ()), self.keys, self.values)

    def value(self, node: Node, path: Keys) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self.error(node, path, f"more than {MAX_NODES} values after its aliases are expanded")
        if self.depth > MAX_DEPTH:
            raise self.error(node, path[:3], "nested too deeply, or an alias that contains itself")
        self.values[path] = self.place(node)
        self.depth += 1
        value = self.parts(node, path)
        self.depth -= 1
        return value

    def parts(self, node: Node, path: Keys) -> Any:
        if isinstance(node, MappingNode):
            return self.mapping(node, path)
        if isinstance(node, SequenceNode):
            self.refuse_tag(node, path, "seq")
            found = [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
            self.values |= {(*path, i): self.place(node) for i, item in enumerate(node.value) if is_empty(item)}
            return found
        assert isinstance(node, ScalarNode)  # the only remaining kind of node
        return self.scalar(node, path)

    def mapping(self, node: MappingNode, path: Keys) -> StudyMap:
        self.refuse_tag(node, path, "map")
        pairs = [(key, value) for key, value in node.value if not self.is_merge(key)]
        inherited = self.inherited([value for key, value in node.value if self.is_merge(key)], path)
        own: StudyMap = {}
        for key_node, value_node in pairs:
            key = self.key(key_node, path)
            if key in own:
                first = self.keys[*path, key]
                raise self.error(key_node, (*path, key), f"given twice (first on line {first.line})")
            if key in inherited:
                self.forget((*path, key))
            self.keys[*path, key] = self.place(key_node)
            self.depth += key.count(".")
            own[key] = self.value(value_node, (*path, key))
            self.depth -= key.count(".")
            if is_empty(value_node):
                self.values[*path, key] = self.keys[*path, key]
        return {**inherited, **own}

    def is_merge(self, key: Node) -> bool:
        return str(key.tag) == type_prefix + "merge"

    def inherited(self, nodes: list[Node], path: Keys) -> StudyMap:
        """Contents of merge keys `<<: *a` and `<<: [*a, *b]`: the first map that has a key wins."""
        together: StudyMap = {}
        for node in nodes:
            for each in node.value if isinstance(node, SequenceNode) else [node]:
                if not isinstance(each, MappingNode):
                    raise self.error(each, (*path, "<<"), "must be a map, or a list of maps")
                inner = _Reading(self.source)
                inner.nodes, inner.depth = self.nodes, self.depth
                together = {**inner.value(each, path), **together}
                self.nodes = inner.nodes
                self.keys = {**inner.keys, **self.keys}
                self.values = {**inner.values, **self.values}
        return together

    def forget(self, path: Keys) -> None:
        """Drop the positions of an inherited key that the map itself gives, too."""
        for places in (self.keys, self.values):
            for known in [p for p in places if p[: len(path)] == path]:
                del places[known]

    def key(self, node: Node, path: Keys) -> str:
        if not isinstance(node, ScalarNode):
            raise self.error(node, path, "a key must be text, not a list or a map")
        return str(node.value)

    def scalar(self, node: ScalarNode, path: Keys) -> Any:
        text, tag = str(node.value), str(node.tag).removeprefix(type_prefix)
        if tag in {"str", "merge"}:
            return text
        if tag == "null":
            return None
        if tag == "bool":
            return text.lower() == "true"
        if tag not in ("int", "float"):
            raise self.tagged(node, path)
        return self.number(node, text, tag, path)

    def number(self, node: ScalarNode, text: str, tag: str, path: Keys) -> int | float:
        try:
            if tag == "float":
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            return int(text, base)
        except ValueError as error:
            digits = sys.get_int_max_str_digits()
            reason = f"more than {digits} digits" if len(text) > digits else f"not a number: {text!r}"
            raise self.error(node, path, reason) from error

    def refuse_tag(self, node: Node, path: Keys, tag: str) -> None:
        if str(node.tag) != type_prefix + tag:
            raise self.tagged(node, path)

    def tagged(self, node: Node, path: Keys) -> StudyError:
        tag = str(node.tag)
        remedy = "" if tag.startswith(type_prefix) else ": quote text that begins with !"
        return self.error(node, path, f"tags are not allowed here ({tag}){remedy}")

    def place(self, node: Node) -> Place:
        return Place(self.source, node.start_mark.line + 1, node.start_mark.column + 1)

    def error(self, node: Node, path: Keys, reason: str) -> StudyError:
        return _error(self.place(node), reason, ".".join(map(str, path)))
