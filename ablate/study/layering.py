"""Merging the layers of a study (file, scale, rung, edits). The field of each section declares its merge rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from ablate.study.layers import Layer
from ablate.study.space import axes
from ablate.study.yamlfile import StudyMap
from ablate.training.probes import short
from zoo.settings.axis import variants
from zoo.settings.edits import flatten, merge

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


def merged_in_long(old: Any, new: Any, _layer: Layer) -> Any:
    """Merge after expanding short forms, so that edits by path find their parts."""
    return merge(short(old), short(new))


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
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        old = {key: value for key, value in old.items() if key not in _of_another_place(old, new)}
    return merge(old, new)


def _of_another_place(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[str, ...]:
    """Settings of a source that hold only for its earlier texts, if its paths have changed."""
    source = variants("ablate.data.sources", "source").get(str(old.get("source")))
    moved = any(key in old and old[key] != new.get(key, old[key]) for key in ("path", "paths"))
    own: tuple[str, ...] = getattr(source, "of_its_place", ())
    return own if moved else ()


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
