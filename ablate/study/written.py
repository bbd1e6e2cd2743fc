"""A study as its author wrote it: a file, a study shipped with the project, or a mapping in Python."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from ablate.machine.environment import PROJECT
from ablate.study.complaints import Place, Problem, StudyError
from ablate.study.layers import Layer, setting_layer
from ablate.study.yamlfile import Keys, YamlDocument, parse_yaml, read_text
from zoo.errors import did_you_mean

SHIPPED = PROJECT / "studies"
RESULTS = SHIPPED / "results"
"""Recorded results of the shipped studies."""
NOWHERE = Place("")
"""Place of a study written in Python: messages show only dotted paths."""

Sets = Mapping[str, object] | Sequence[str]
"""Edits of a study by dotted path: `{"train.lr": 1e-3}`, or `["train.lr=1e-3"]` as on the command line."""


@dataclass(frozen=True)
class Written:
    """The source of a study. `path` is None for one written in Python. Relative paths start from `folder`."""

    name: str
    text: str
    document: YamlDocument = field(repr=False)
    folder: Path
    path: Path | None = None
    sets: tuple[Layer, ...] = ()
    """Edits over the file and its scale; the last one wins."""
    needs_arms: bool = True
    """False for a base alone, whose changes come from elsewhere."""

    @property
    def edits(self) -> dict[str, object]:
        """The edits in `sets`, by path."""
        return {path: value for layer in self.sets for path, value in layer.written.items()}

    @property
    def place(self) -> str:
        """Its name in messages."""
        return self.name if self.path is None else str(self.path)


def derived(base: Written, name: str, data: Mapping[str, object], sets: Sets = ()) -> Written:
    """A study derived from another one, whose relative paths and edits it keeps; `sets` are edits on top."""
    made = _from_map(data)
    return replace(made, name=name, folder=base.folder, sets=(*base.sets, *edit_layers(sets)))


def read_study(source: str | Path | Mapping[str, object]) -> Written:
    """The study at a path, the shipped one of that name, or a map with the keys of a study file.

    Raises:
        StudyError: there is no such study, or it is not a map of plain data.
    """
    if isinstance(source, Mapping):
        return _from_map(source)
    path = _located(source)
    text = read_text(path)
    document = parse_yaml(text, str(path))
    if not isinstance(document.data, Mapping):
        reason = "the file is empty" if document.data is None else "must be a map, with a question, a base and arms"
        raise StudyError([Problem(document.values[()], "", reason)])
    return Written(path.stem, text, document, path.resolve().parent, path)


def results_beside(study: Path) -> Path:
    """The folder of the recorded results of a study file."""
    return RESULTS if SHIPPED in study.resolve().parents else study.parent / "results"


def shipped() -> list[str]:
    """Names of the studies that ship with the project."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def _located(source: str | Path) -> Path:
    """The path of a file, or of the shipped study of that name. Raises StudyError for an unknown name."""
    path = Path(source)
    if path.suffix or path.exists() or len(path.parts) != 1:
        return path
    if path.name in shipped():
        return SHIPPED / f"{path.name}.yaml"
    reason = "neither a file nor the name of a shipped study" + did_you_mean(path.name, shipped())
    raise StudyError([Problem(Place(str(source)), "", reason)])


def _from_map(source: Mapping[str, object]) -> Written:
    """A study from a map, named by a hash of its content: equal maps are the same study."""
    document = _document(source, NOWHERE)
    stream = io.StringIO()
    YAML().dump(document.data, stream)
    text = stream.getvalue()
    return Written(f"study-{hashlib.sha256(text.encode()).hexdigest()[:8]}", text, document, Path.cwd())


def edit_layers(sets: Sets) -> list[Layer]:
    """A layer for each edit. Raises StudyError."""
    if isinstance(sets, Mapping):
        return [_map_layer(path, value) for path, value in sets.items()]
    return [setting_layer(text) for text in sets]


def _map_layer(path: str, value: Any) -> Layer:
    place = Place("sets")
    if not (isinstance(path, str) and all(path.split("."))):
        raise StudyError([Problem(place, "", f"expected a dotted path such as train.lr, not {path!r}")])
    return Layer(_document({path: value}, place))


def _document(data: Mapping[str, object], place: Place) -> YamlDocument:
    """A document of Python data, all of it at one place. Raises StudyError."""
    problems: list[Problem] = []
    values = _plain(data, (), place, problems)
    if problems:
        raise StudyError(problems)
    paths = dict.fromkeys(_paths(values, ()), place)
    return YamlDocument(values, paths, paths)


def _plain(value: Any, path: Keys, place: Place, problems: list[Problem]) -> Any:
    """Plain data as YAML would give it: maps with text keys, lists, text, numbers, true, false and null. Appends to
    `problems`."""
    if isinstance(value, Mapping):
        return {_key(key, path, place, problems): _plain(v, (*path, key), place, problems) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, (*path, i), place, problems) for i, each in enumerate(value)]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if value is not None and not isinstance(value, str | int | float | bool):
        reason = f"must be plain data (text, numbers, lists and maps), not {type(value).__name__}"
        problems.append(Problem(place, _written(path), reason))
    return value


def _key(key: Any, path: Keys, place: Place, problems: list[Problem]) -> Any:
    if not isinstance(key, str):
        problems.append(Problem(place, _written((*path, key)), f"a key must be text, not {type(key).__name__}"))
    return key


def _paths(value: Any, path: Keys) -> Iterator[Keys]:
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, inner in pairs:
        yield from _paths(inner, (*path, part))


def _written(path: Keys) -> str:
    return ".".join(map(str, path))
