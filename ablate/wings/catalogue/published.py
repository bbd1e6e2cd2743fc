"""One row for each preset's architecture, derived from its spec; from its stated parts if it cannot be built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import zoo
from ablate.wings.catalogue.model_table import PATHS, Row, text
from ablate.wings.catalogue.parts import parts_of
from zoo.presets import Preset
from zoo.settings.axis import Spec
from zoo.settings.field_tags import Fact, names_with


def preset_row(preset: Preset) -> Row:
    """A preset's entry in `ablate zoo --json`."""
    stated = {column: _at(preset.parts, path) for column, path in PATHS.items()} | {"experts": None, "tricks": []}
    parts = _built(preset.spec) if preset.buildable else stated
    cost = zoo.cost(preset.spec) if preset.buildable else None
    return {
        "name": preset.name,
        "year": preset.year,
        **parts,
        "parameters": cost.params if cost else None,
        "published_parameters": preset.published_parameters,
        "active_parameters": cost.params_active if cost else None,
        "published_active_parameters": preset.published_active_parameters,
        "source": preset.source,
        "assumed": list(preset.assumed),
        "note": preset.note,
        "parts": sorted(parts_of(preset.spec.dump() if preset.buildable else preset.parts)),
    }


def _built(spec: zoo.ModelSpec) -> Row:
    layers = spec.layers
    return {
        "norm": _each(layer.norm.kind for layer in layers),
        "placement": _each(layer.norm_placement.kind for layer in layers),
        "topology": _each(layer.topology for layer in layers),
        "position": _each(_position(layer.mixer) for layer in layers),
        "activation": _each(_activation(layer.ffn) for layer in layers),
        "attention": _counted(_attention(layer.mixer) for layer in layers),
        "experts": _each(filter(None, (_experts(layer.ffn) for layer in layers))),
        "tricks": _tricks(spec),
    }


def _at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = {"kind": data}.get(key) if isinstance(data, str) else (data or {}).get(key)
    return data


def _each(words: Iterable[str]) -> str:
    """The distinct words, in the order of the layers."""
    return ", ".join(dict.fromkeys(words))


def _position(mixer: Any) -> str:
    """The position scheme, with its scaling if any; the mixer's kind if it has no choice of schemes."""
    position = getattr(mixer, "position", mixer)
    scaling = getattr(position, "scaling", None)
    return f"{position.kind} ({scaling.kind})" if scaling is not None else str(position.kind)


def _activation(ffn: Any) -> str:
    """The layer's kind, with those of its inner parts, such as experts."""
    inside = [value.kind for _, value in ffn if isinstance(value, Spec) and hasattr(value, "kind")]
    return f"{ffn.kind} ({', '.join(inside)})" if inside else str(ffn.kind)


def _counted(words: Iterable[str]) -> str:
    """The distinct words, in the order of the layers; if there are several, with the number of layers of each."""
    found = Counter(words)
    return ", ".join(found) if len(found) == 1 else ", ".join(f"{word} ×{layers}" for word, layers in found.items())


def _attention(mixer: Any) -> str:
    """`MHA`, `GQA (8)`, `MQA` by the number of key-value heads, else the mixer's name."""
    heads, kv_heads = getattr(mixer, "heads", None), getattr(mixer, "kv_heads", None)
    if kv_heads is None:
        return {"mla": "MLA", "dsa": "MLA (dsa)"}.get(mixer.kind, str(mixer.kind))
    named = "MHA" if kv_heads == heads else "MQA" if kv_heads == 1 else f"GQA ({kv_heads})"
    return named if mixer.kind == "attention" else f"{mixer.kind} {named}"


def _experts(ffn: Any) -> str:
    """`256, top 8, 1 shared`; empty for a dense layer."""
    if getattr(ffn, "experts", None) is None:
        return ""
    shared = f", {ffn.shared_experts} shared" if getattr(ffn, "shared_experts", 0) else ""
    return f"{ffn.experts}, top {ffn.top_k}{shared}"


def _tricks(spec: zoo.ModelSpec) -> list[str]:
    """Settings that are not the default, except sizes; with the number of layers if only some have the setting."""
    model = [_trick(*setting) for setting in _chosen(spec)]
    counts: Counter[str] = Counter()
    for name, layers in Counter(spec.layer_names).items():
        counts.update(dict.fromkeys(_block_tricks(spec.written(name)), layers))
    of = len(spec.layer_names)
    return model + [
        trick if layers == of else f"{trick} in {layers} of {of} layers" for trick, layers in counts.items()
    ]


def _block_tricks(block: Any) -> Iterator[str]:
    for where in ("norm_placement", "mixer", "ffn"):
        for name, value in _chosen(getattr(block, where)):
            if f"block.{where}.{name}.kind" not in PATHS.values():
                yield _trick(name, value)


def _trick(name: str, value: Any) -> str:
    """`kv_heads=8`; `encoder(n_layers=6)` for a part without a kind."""
    if isinstance(value, Spec) and not hasattr(value, "kind"):
        return f"{name}({', '.join(_trick(*setting) for setting in _changed(value))})"
    return f"{name}={'none' if value is None else text(value)}"


def _chosen(part: Spec) -> Iterator[tuple[str, Any]]:
    """Settings that are not the default and change what a part does: neither sizes nor the choice of layers."""
    sizes = names_with(type(part), Fact.SIZE, Fact.LAYERS)
    return ((name, value) for name, value in _changed(part) if name not in sizes)


def _changed(part: Spec) -> Iterator[tuple[str, Any]]:
    """Settings that are not the default."""
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if value != field.get_default(call_default_factory=True):
            yield name, value
