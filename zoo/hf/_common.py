"""Common code of families of the Llama kind: tensor names and conversions of layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns._dense import Dense
from zoo.hf._pairs import Pair, both, fused, same
from zoo.mixers.attention import Attention
from zoo.norms import Norm
from zoo.positions.nope import NoPE

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
    gate_up = [f"{ours}.gate.weight", f"{ours}.up.weight"]
    yield fused(gate_up, f"{theirs}.gate_up_proj.weight", [ffn.width] * 2)
    yield same(f"{ours}.down.weight", f"{theirs}.down_proj.weight")


def norm_weights(norm: Norm, ours: str, theirs: str) -> Iterator[Pair]:
    """The norm's gain and bias, if it has them."""
    if getattr(norm, "gain", True):
        yield same(f"{ours}.gain", f"{theirs}.weight")
    if getattr(norm, "bias", False):
        yield same(f"{ours}.bias", f"{theirs}.bias")
