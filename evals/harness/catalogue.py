"""Lookup of lm-eval's own tasks by name, without parsing its 14,000 task files.

All files are read as text, and only files that mention a requested name are parsed; then files that include one of
these, and the members of groups, until nothing new is found.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import lm_eval.tasks
import yaml
from lm_eval.tasks._index import Entry, Kind, TaskIndex
from lm_eval.tasks._yaml_loader import load_yaml

from store.files import read_regular
from zoo.errors import did_you_mean

MOST_DEPTH = 50
FOLDER = Path(lm_eval.tasks.__file__).parent
_WORD = re.compile(rb"[\w-]+")
_PATH = re.compile(rb"[\w./-]{2,}")
_NAMING = re.compile(rb"^[ \t]*(?:[\"']?(?:task|group|tag)[\"']?:|- ).*", re.MULTILINE)
"""A line with the name of a file's task, group or tags, or that may be an item of such a list."""
_INCLUDE = re.compile(rb"^[\"']?include[\"']?:(.*(?:\n[ \t]*- .*)*)", re.MULTILINE)

Index = dict[str, Entry]
TaskConfig: TypeAlias = Mapping[str, Any]
"""A task's settings as written in its file, for lm-eval to validate."""


def index(names: Sequence[str], own: Sequence[Path]) -> Index:
    """lm-eval's entries of `names` with all their members, and of all tasks in the folders `own`, which come first.

    names: tasks, groups or tags, or paths of task files. Names that nothing defines are not in the result.
    """
    found: Index = {}
    for folder in own:
        found |= _of_folder(folder)
    missing = {name for name in reached(names, found) if name not in found}
    return found if not missing else {**_official(missing), **found}


def _of_folder(folder: Path) -> Index:
    """The tasks of a folder. Files that lm-eval cannot read are left out, as by its own index."""
    found: Index = {}
    for path in TaskIndex._iter_yaml_files(folder):
        if isinstance(config := _parse(path), dict):
            with suppress(ValueError, TypeError, KeyError, AttributeError):  # other settings than a task's
                TaskIndex.process_cfg(config, path, found)
    return found


def near(name: str) -> str:
    """`" (did you mean 'x'?)"`, with x a similar task or group of lm-eval; an empty string if there is none."""
    words = [word.decode() for word in _texts(FOLDER).words]
    likely = difflib.get_close_matches(name, words, n=5)  # a word need not be a name
    return did_you_mean(name, _official(set(likely)).keys() & set(likely))


def members(entry: Entry) -> Iterator[str]:
    """Names of the members of a group or a tag."""
    if entry.kind == Kind.TAG:
        yield from sorted(entry.tags)
    elif entry.kind == Kind.GROUP:
        yield from _named((entry.cfg or {}).get("task"))


def _official(names: set[str]) -> Index:
    parsed: dict[str, TaskConfig | None] = {}
    wanted, found = set(names), dict[str, Entry]()
    while new := sorted(_mentioning(wanted) - parsed.keys()):
        parsed |= {path: _parse(Path(path)) for path in new}
        found = {}
        for path, config in sorted(parsed.items()):  # lm-eval's own rule: the first definition of a name counts
            if path.endswith(".yaml") and config and config.keys() & {"class", "group", "task"}:
                TaskIndex.process_cfg(config, Path(path), found)
        wanted = set(reached(names, found))
    return found


def _parse(path: Path) -> Any:
    """A task file with its includes; None if lm-eval cannot read it and skips it."""
    try:
        _check_depth(path)
        return load_yaml(path, resolve_func=False)
    except Exception:  # PyYAML raises whatever a tag's constructor raises
        return None


def from_file(path: Path) -> Entry:
    """lm-eval's entry of a task file. Raises ValueError with a one-line reason if it is none; runs none of its code."""
    try:
        _check_depth(path)
        entry = TaskIndex.entry_from_path(path)
    except Exception as error:  # YAML of any shape: lm-eval expects a task's keys and types
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
    if entry is None:
        raise ValueError("it names no task")
    return entry


def _check_depth(path: Path, seen: set[Path] | None = None) -> None:
    """Raise ValueError for YAML nested so deeply that libyaml's composer, which recurses, would overflow the stack, in
    the file or in one that it includes; and OSError if one is no regular file. seen: files that were checked."""
    seen, path, depth = set() if seen is None else seen, path.resolve(), 0
    if path in seen:
        return
    seen.add(path)
    for event in yaml.parse(read_regular(path), Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise ValueError("nested too deeply")
    included = load_yaml(path, resolve_func=False, recursive=False).get("include", [])
    for name in included if isinstance(included, list) else [included]:
        _check_depth(path.parent / name, seen)


def reached(names: Iterable[str], found: Mapping[str, Entry]) -> Iterator[str]:
    """`names`, and their known members, recursively."""
    left, seen = list(names), set[str]()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name
        if name in found:
            left += members(found[name])
        elif Path(name).is_file():
            left += _named(_parse(Path(name)))


def _named(node: Any) -> Iterator[str]:
    """Names in a group's list of tasks, which may contain maps of tasks and of groups."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for each in node:
            yield from _named(each)
    elif isinstance(node, dict):
        yield from _named(node.get("task"))
        yield from _named(node.get("group"))


def _mentioning(names: Iterable[str]) -> set[str]:
    """Files that contain all words of one of the names, and files that include one of these, recursively."""
    text = _texts(FOLDER)
    found: set[str] = set()
    for name in names:
        places = [text.words.get(word, set()) for word in _WORD.findall(name.encode())]
        found |= set[str].intersection(*places) if places else set()
    left = list(found)
    while left:
        new = text.includers.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


class _Texts(NamedTuple):
    """Files by each word with which lm-eval's files name tasks; and for every file, the files that include it."""

    words: dict[bytes, set[str]]
    includers: dict[str, set[str]]


@cache
def _texts(root: Path) -> _Texts:
    found = _Texts(defaultdict(set), defaultdict(set))
    left = [f"{folder}/{name}" for folder, _, names in os.walk(root) for name in names if name.endswith(".yaml")]
    seen = set(left)
    while left:
        path = left.pop()
        text = Path(path).read_bytes() if Path(path).is_file() else b""
        for line in _NAMING.findall(text):
            for word in _WORD.findall(line):
                found.words[word].add(path)
        names = (name.decode() for line in _INCLUDE.findall(text) for name in _PATH.findall(line))
        included = {os.path.normpath(f"{path}/../{name}") for name in names}
        for each in included:
            found.includers[each].add(path)
        left += included - seen
        seen |= included
    return found
