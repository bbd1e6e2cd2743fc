"""Layers that differ from one another: patterns of blocks, and windows on some layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zoo.errors import UnsupportedError
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.model_settings import BASE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

FULL, SLIDING = "full_attention", "sliding_attention"


def pattern(names: Sequence[str], blocks: dict[str, SpecJson]) -> SpecJson:
    """Spec fields by which layer i is the block `names[i]`: the base block, or one given by its edits."""
    period = next(p for p in range(1, len(names) + 1) if all(name == names[i % p] for i, name in enumerate(names)))
    used = {name: edits for name, edits in blocks.items() if name in names}
    return {"blocks": used, "pattern": list(names[:period])}


def layered(kinds: Sequence[Sequence[str]], edits: Mapping[str, SpecJson]) -> SpecJson:
    """Spec fields by which layer i is the base block with the edits that `kinds[i]` names, in order."""
    named = {"_".join(kind) or BASE: kind for kind in kinds}
    blocks = {name: {key: value for each in kind for key, value in edits[each].items()} for name, kind in named.items()}
    return pattern(["_".join(kind) or BASE for kind in kinds], {k: v for k, v in blocks.items() if k != BASE})


def windows(config: Config) -> SpecJson:
    """Spec fields for attention windows on the layers that the config's `layer_types` name."""
    window, types = config.get("sliding_window"), sliding_types(config)
    return pattern([BASE if kind == FULL else "window" for kind in types], {"window": {"mixer.window": window}})


def sliding_types(config: Config) -> list[str]:
    """`types_of` a config. Raises UnsupportedError, too, for sliding attention without a `sliding_window`."""
    types = types_of(config)
    if SLIDING in types and not config.get("sliding_window"):
        raise UnsupportedError("sliding_window", "must be set for layers with sliding attention")
    return types


def types_of(config: Config, other: str = SLIDING) -> list[str]:
    """`layer_types`, one for each layer: full attention or `other`. Raises UnsupportedError."""
    layers = config["num_hidden_layers"]
    types: list[str] = config.get("layer_types") or [FULL] * layers
    for kind in types:
        if kind not in (FULL, other):
            raise UnsupportedError("layer_types", f"'{kind}' cannot be converted, only {FULL} and {other}")
    if len(types) != layers:
        raise UnsupportedError("layer_types", f"must have {layers} entries, one per layer, not {len(types)}")
    return types


def window_of(spec: ModelSpec) -> int | None:
    """The window of the layers that have one; None if none has. Raises UnsupportedError for several sizes."""
    found = {attention(layer).window for layer in spec.layers} - {None}
    if len(found) > 1:
        raise UnsupportedError(
            "mixer.window", f"windows of several sizes have no counterpart: {sorted(map(str, found))}"
        )
    return next(iter(found), None)


def layer_types(spec: ModelSpec) -> list[str]:
    """The config's `layer_types`: sliding attention for layers with a window, else full attention."""
    return [FULL if attention(layer).window is None else SLIDING for layer in spec.layers]


def used_window_config(spec: ModelSpec) -> ConfigJson:
    """Windows as arguments of a config class that has the flag `use_sliding_window`."""
    window = window_of(spec)
    return {"layer_types": layer_types(spec), "use_sliding_window": window is not None, "sliding_window": window}


def window_config(spec: ModelSpec) -> ConfigJson:
    """Windows as arguments of a config class that always has a window size: without windows, its default is kept."""
    window = window_of(spec)
    return {"layer_types": layer_types(spec), **({} if window is None else {"sliding_window": window})}
