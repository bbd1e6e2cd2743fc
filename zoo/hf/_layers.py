"""Common code for the layers of families of the Llama kind: tensor names, conversions of layers, and layers that
differ from one another, by patterns of blocks or by windows on some layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns._dense import Dense
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import Pair, both, fused_layers, same
from zoo.mixers.attention import Attention
from zoo.model_settings import BASE
from zoo.norms import Norm
from zoo.positions.nope import NoPE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

T = TypeVar("T")


def expect(part: object, kind: type[T], path: str) -> T:
    """The part, if it is an instance of `kind`. Raises UnsupportedError otherwise."""
    if not isinstance(part, kind):
        raise UnsupportedError(path, f"{getattr(part, 'kind', part)} has no counterpart")
    return part


def attention(layer: BlockSpec) -> Attention:
    return expect(layer.mixer, Attention, "mixer")


def dense(layer: BlockSpec) -> Dense:
    return expect(layer.ffn, Dense, "ffn")


def turns(layer: BlockSpec) -> bool:
    """Whether the layer's attention has positions."""
    return not isinstance(attention(layer).position, NoPE)


def norm_eps(layer: BlockSpec) -> float:
    """ε of the block's norm. Raises UnsupportedError for a norm without ε."""
    eps = getattr(layer.norm, "eps", None)
    if eps is None:
        raise UnsupportedError("norm", f"{layer.norm.kind} has no counterpart")
    return float(eps)


def inverse(read: Callable[[float], float], near: float, x: float) -> float:
    """A y at or next to `near` with read(y) = x exactly, preferably of few digits; else `near`."""
    candidates = (round(near, 9), near, math.nextafter(near, math.inf), math.nextafter(near, 0))
    return next((y for y in candidates if y and read(y) == x), near)


def reciprocal(x: float) -> float:
    """A y with 1/y = x exactly, preferably of few digits; 1/x rounded if there is none."""
    return inverse(lambda y: 1 / y, 1 / x, x)


def linears(ours: str, theirs: str, names: Mapping[str, str], biases: Iterable[str]) -> Iterator[Pair]:
    """Pairs of linear layers. names: transformers' names by ours. biases: our names of the layers that have a bias."""
    for our_name, their_name in names.items():
        yield from both(f"{ours}.{our_name}", f"{theirs}.{their_name}", bias=our_name in biases)


PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
QK_NORMS = {"q": "q_norm", "k": "k_norm"}
"""transformers' names of an attention layer's projections and QK norms, keyed by ours."""


def attention_weights(
    mixer: Attention,
    ours: str,
    theirs: str,
    names: Mapping[str, str] = PROJECTIONS,
    norms: Mapping[str, str] = QK_NORMS,
) -> Iterator[Pair]:
    """q, k, v and o with biases, QK norms, and sinks."""
    yield from linears(ours, theirs, names, mixer.bias)
    if mixer.qk_norm is not None:
        for part, name in norms.items():
            yield from norm_weights(mixer.qk_norm, f"{ours}.{part}_norm", f"{theirs}.{name}")
    if mixer.sinks:
        yield same(f"{ours}.sinks", f"{theirs}.sinks")


def fused_gate_up(ffn: Dense, ours: str, theirs: str) -> Iterator[Pair]:
    """Gate and up, which transformers fuses into one matrix, and down."""
    yield from fused_layers(ours, ("gate", "up"), f"{theirs}.gate_up_proj", [ffn.width] * 2)
    yield same(f"{ours}.down.weight", f"{theirs}.down_proj.weight")


def norm_weights(norm: Norm, ours: str, theirs: str) -> Iterator[Pair]:
    """The norm's gain and bias, if it has them."""
    if getattr(norm, "gain", True):
        yield same(f"{ours}.gain", f"{theirs}.weight")
    if getattr(norm, "bias", False):
        yield same(f"{ours}.bias", f"{theirs}.bias")


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
