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
    """The part, if it is of this kind."""
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
    """ε of the block's norm."""
    eps = getattr(layer.norm, "eps", None)
    if eps is None:
        raise UnsupportedError("norm", f"{layer.norm.kind} has no counterpart")
    return float(eps)


def inverse(read: Callable[[float], float], near: float, x: float) -> float:
    """A short y beside `near` with read(y) = x exactly, where there is one."""
    candidates = (round(near, 9), near, math.nextafter(near, math.inf), math.nextafter(near, 0))
    return next((y for y in candidates if y and read(y) == x), near)


def reciprocal(x: float) -> float:
    """A short y with 1/y = x exactly, where there is one."""
    return inverse(lambda y: 1 / y, 1 / x, x)


def linears(ours: str, theirs: str, names: Mapping[str, str], biases: Iterable[str]) -> Iterator[Pair]:
    """Linear layers by our name and theirs. biases: ours of those that have a bias."""
    for our_name, their_name in names.items():
        yield from both(f"{ours}.{our_name}", f"{theirs}.{their_name}", bias=our_name in biases)


PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
QK_NORMS = {"q": "q_norm", "k": "k_norm"}
"""Names of an attention layer's projections, and of its norms of queries and keys, by ours."""


def attention_weights(
    mixer: Attention,
    ours: str,
    theirs: str,
    names: Mapping[str, str] = PROJECTIONS,
    norms: Mapping[str, str] = QK_NORMS,
) -> Iterator[Pair]:
    """q, k, v, o with biases, norms of queries and keys, and sinks."""
    yield from linears(ours, theirs, names, mixer.bias)
    if mixer.qk_norm is not None:
        for part, name in norms.items():
            yield from norm_weights(mixer.qk_norm, f"{ours}.{part}_norm", f"{theirs}.{name}")
    if mixer.sinks:
        yield same(f"{ours}.sinks", f"{theirs}.sinks")


def fused_gate_up(ffn: Dense, ours: str, theirs: str) -> Iterator[Pair]:
    """gate and up in one matrix of theirs, down."""
    gate_up = [f"{ours}.gate.weight", f"{ours}.up.weight"]
    yield fused(gate_up, f"{theirs}.gate_up_proj.weight", [ffn.width] * 2)
    yield same(f"{ours}.down.weight", f"{theirs}.down_proj.weight")


def norm_weights(norm: Norm, ours: str, theirs: str) -> Iterator[Pair]:
    """The gain and the bias that the norm has."""
    if getattr(norm, "gain", True):
        yield same(f"{ours}.gain", f"{theirs}.weight")
    if getattr(norm, "bias", False):
        yield same(f"{ours}.bias", f"{theirs}.bias")
