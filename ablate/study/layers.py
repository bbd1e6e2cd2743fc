"""The layers of a study (a shipped scale, the file, its own edits at that scale, `--set`), and how they merge: later
layers win, by the rule that the field of each section declares.

`Origins` remembers where each setting was written, so that an error that arises in a resolved spec
can still point at the words that caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from ablate.study.complaints import Place, Problem, StudyError
from ablate.study.space import axes
from ablate.study.yamlfile import MAX_DEPTH, Keys, StudyMap, YamlDocument, parse_yaml
from zoo.errors import Kind
from zoo.settings.axis import variants
from zoo.settings.edits import expand, flatten, merge

Target = tuple[str, ...]
"""A setting's path in the study, one key each: `("train", "lr")`, `("arms", "post", "block")`."""


@dataclass(frozen=True)
class SettingOrigin:
    """Origin of a setting: the setting, its path in the document, and the positions of its key and value."""

    target: Target
    path: Keys
    key: Place
    value: Place
    is_leaf: bool = False
    """Whether its value is not a map."""

    @property
    def written(self) -> str:
        """The path as the user wrote it."""
        return ".".join(map(str, self.path))

    def problem(self, target: Target, reason: str, *, at_key: bool = False, kind: Kind = "illegal") -> Problem:
        """A problem with `target`: this setting itself, one inside it, or another that is reported here."""
        inside = target[len(self.target) :] if target[: len(self.target)] == self.target else ()
        path = ".".join(filter(None, (self.written, *inside)))
        return Problem(self.key if at_key or kind == "unknown_key" else self.value, path, reason, kind)


@dataclass(frozen=True)
class Layer:
    """Edits of the study: the map at `root` of a document, with dotted or nested keys."""

    document: YamlDocument
    root: Keys = ()
    without: frozenset[str] = frozenset()
    shipped: bool = False
    """Whether it is a scale that comes with the tool, which fits many studies and refers to none of their arms."""

    @property
    def is_rung(self) -> bool:
        """Whether these are the edits of a ladder's rung."""
        return self.root[-2:-1] == ("ladder",)

    @property
    def written(self) -> StudyMap:
        """The map as the user wrote it."""
        here = self.document.data
        for part in self.root:
            here = here[part]
        return {key: value for key, value in here.items() if key not in self.without}

    @property
    def nested(self) -> StudyMap:
        """The map without dotted keys."""
        return expand(self.written)

    def settings(self) -> Iterator[tuple[SettingOrigin, bool]]:
        """Every map entry and list item, and whether it is a map entry that ends a path."""
        yield from self._walk(self.written, self.root, ())

    def _walk(self, here: Any, path: Keys, target: Target) -> Iterator[tuple[SettingOrigin, bool]]:
        pairs: list[tuple[str | int, Any]] = []
        if isinstance(here, Mapping):
            pairs = list(here.items())
        elif isinstance(here, list):
            pairs = list(enumerate(here))
        for part, inner in pairs:
            inner_path, inner_target = (*path, part), (*target, *str(part).split("."))
            is_leaf = isinstance(here, Mapping) and not isinstance(inner, Mapping)
            value = self.document.values[inner_path]
            key = self.document.keys.get(inner_path, value)  # a list item has no key
            yield SettingOrigin(inner_target, inner_path, key, value, not isinstance(inner, Mapping)), is_leaf
            yield from self._walk(inner, inner_path, inner_target)


def setting_layer(text: str, option: str = "--set") -> Layer:
    """The layer of one `--set key=value`, or of another option; the value is YAML 1.2."""
    place = Place(f"{option} {text}")
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise StudyError([Problem(place, "", "expected key=value, such as train.lr=1e-3")])
    if key.count(".") > MAX_DEPTH:
        raise StudyError([Problem(Place(option), "", "nested too deeply")])
    try:
        document = parse_yaml(value, place.source)
    except StudyError as error:
        raise StudyError(Problem(place, key, problem.reason) for problem in error.problems) from error
    keys = {(key, *path): place for path in [(), *document.keys]}
    values = {(key, *path): place for path in document.values}
    return Layer(YamlDocument({key: document.data}, keys, values))


class Origins:
    """Origins of the settings of all layers."""

    def __init__(self, file: Place) -> None:
        self.file = SettingOrigin((), (), file, file)
        self.shipped: list[SettingOrigin] = []
        self.own: list[SettingOrigin] = []

    @property
    def known(self) -> list[SettingOrigin]:
        """All settings, the user's own last: problems point at these first, even if a shipped scale overrides them."""
        return [*self.shipped, *self.own]

    def add(self, layer: Layer) -> list[Problem]:
        """Add a layer. A setting that it gives twice is a problem."""
        settings = list(layer.settings())
        leaves = {origin.target: origin for origin, is_leaf in reversed(settings) if is_leaf}
        (self.shipped if layer.shipped else self.own).extend(origin for origin, _ in settings)
        return [problem for origin, is_leaf in settings for problem in _twice(origin, is_leaf, leaves)]

    def problem(self, target: Target, reason: str, *, at_key: bool = False, kind: Kind = "illegal") -> Problem:
        """A problem with a setting, placed where it was last written, or else inside it, or around it: at the value,
        or at the key if `at_key`. The user's value in place of a map (`data: t.txt`) takes precedence over settings of
        a shipped scale in that map."""
        inside = [o for o in self.known if o.target[: len(target)] == target]
        around = [o for o in self.known if target[: len(o.target)] == o.target]
        exact = [o for o in inside if o.target == target]
        if not any(o in self.own for o in exact):
            own = max((o for o in around if o in self.own), key=lambda o: len(o.target), default=None)
            exact = [own] if own is not None and own.is_leaf else exact
        nearest = max(reversed(around), key=lambda o: len(o.target), default=self.file)
        origin = (exact or inside or [nearest])[-1]
        return origin.problem(target, reason, at_key=at_key, kind=kind)


def _twice(origin: SettingOrigin, is_leaf: bool, leaves: Mapping[Target, SettingOrigin]) -> Iterator[Problem]:
    """Problems of a setting given twice: `block.norm: x` beside `block: {norm: y}`, or beside `block.norm.eps: z`."""
    for depth in range(1, len(origin.target) + 1):
        other = leaves.get(origin.target[:depth])
        if other is None or origin.path[: len(other.path)] == other.path:
            continue
        if is_leaf or depth < len(origin.target):
            where = f"{other.written}, {other.key}"
            yield origin.problem(origin.target, f"given twice (also as {where})", at_key=True)


def common_length(a: Target, b: Target) -> int:
    """Number of keys that two paths share from the root."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


Rule = Callable[[Any, Any, Layer], Any]
"""(value of earlier layers, value in this layer, this layer) → merged value."""


def merged(old: Any, new: Any, _layer: Layer) -> Any:
    """Merge maps key by key; a part of another kind replaces the old one (`zoo.settings.edits.merge`)."""
    return merge(old, new)


def replaced(_old: Any, new: Any, _layer: Layer) -> Any:
    """Keep nothing of earlier layers: a scale that budgets tokens has no budget in FLOPs."""
    return new


def replaced_but_for_matching(old: Any, new: Any, layer: Layer) -> Any:
    """Replace a budget whole, except that rungs of a ladder and shipped scales keep the matching of parameters.
    `parameters` alone is added to the earlier budget."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    if set(new) == {"parameters"}:
        return {**old, **new}
    kept = (layer.is_rung or layer.shipped) and "parameters" in old
    return {"parameters": old["parameters"], **new} if kept else new


def merged_within_source(old: Any, new: Any, layer: Layer) -> Any:
    """Merge data. A new source keeps the settings that it shares with the old one. A shipped scale keeps the source."""
    if layer.shipped and isinstance(old, Mapping) and isinstance(new, Mapping):
        source = old.get("source", "stdlib")
        shared = _shared(source, new.get("source", source))
        new = {key: value for key, value in new.items() if key in shared}
    name = new.get("source") if isinstance(new, Mapping) else new
    if isinstance(old, Mapping) and name not in (None, old.get("source")):
        shared = _shared(old.get("source"), name)
        old = {key: value for key, value in old.items() if key in shared}
    if (
        isinstance(old, Mapping)
        and isinstance(new, Mapping)
        and any(key in old and old[key] != new.get(key, old[key]) for key in ("path", "paths"))
    ):
        kept = variants("ablate.data.sources", "source").get(str(old.get("source")))
        of_earlier_texts: tuple[str, ...] = getattr(kept, "of_its_place", ())
        old = {key: value for key, value in old.items() if key not in of_earlier_texts}
    return merge(old, new)


def _shared(source: object, other: object) -> set[str]:
    """Names of the settings that two data sources share, with the same type: a limit in documents is not one in bytes.
    Empty for an unknown source, which is reported elsewhere."""
    known = variants("ablate.data.sources", "source")
    if not all(isinstance(each, str) and each in known for each in (source, other)):
        return set()
    own, others = (known[str(each)].model_fields for each in (source, other))
    alike = {key for key in own.keys() & others.keys() if own[key].annotation == others[key].annotation}
    return alike - {"source"}


def as_written(value: Any) -> Any:
    return value


def by_path(value: Any) -> Any:
    """A map of values by dotted path, however nested."""
    return dict(flatten(value)) if isinstance(value, Mapping) else value


def space_by_path(value: Any) -> Any:
    """A section with its `space` as a map of axes by dotted path."""
    if isinstance(value, Mapping) and isinstance(value.get("space"), Mapping):
        return {**value, "space": dict(axes(value["space"]))}
    return value


@dataclass(frozen=True)
class LayerRule:
    """Field annotation: merge rule of a section's layers, their initial value, and the final normalisation."""

    rule: Rule = merged
    first: Any = None
    spelled: Callable[[Any], Any] = as_written


def together(layers: Iterable[Layer], fields: Mapping[str, FieldInfo]) -> StudyMap:
    """The merged sections of all layers, nested. Unknown sections are merged, too, and refused later."""
    how = {
        name: next((each for each in field.metadata if isinstance(each, LayerRule)), LayerRule())
        for name, field in fields.items()
    }
    tree = {name: each.first for name, each in how.items() if each.first is not None}
    for layer in layers:
        for key, value in layer.nested.items():
            if layer.shipped and key in tree and tree[key] is None:
                continue  # a study that sets `measure`, `evals` or `ladder` to null does so at every scale
            tree[key] = how.get(key, LayerRule()).rule(tree.get(key), value, layer)
    return {key: how.get(key, LayerRule()).spelled(value) for key, value in tree.items()}
