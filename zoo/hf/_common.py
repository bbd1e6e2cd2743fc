"""Common code of families of the Llama kind: tensor names and conversions of layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.ffns._dense import Dense
from zoo.hf._pairs import Pair, both, same
from zoo.mixers.attention import Attention
from zoo.spec import ModelSpec

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


def norm_eps(layer: BlockSpec) -> float:
    """ε of the block's norm."""
    eps = getattr(layer.norm, "eps", None)
    if eps is None:
        raise UnsupportedError("norm", f"{layer.norm.kind} has no counterpart")
    return float(eps)


def reciprocal(x: float) -> float:
    """A short y with 1/y = x exactly, where there is one."""
    near = (round(1 / x, 9), 1 / x, math.nextafter(1 / x, math.inf), math.nextafter(1 / x, 0))
    return next((y for y in near if y and 1 / y == x), near[1])


def outside(spec: ModelSpec) -> Iterator[Pair]:
    """Embedding and head."""
    yield same("embedding.weight", "model.embed_tokens.weight")
    if not spec.tie_embeddings:
        yield same("head.weight", "lm_head.weight")


def attention_weights(mixer: Attention, ours: str, theirs: str) -> Iterator[Pair]:
    """q, k, v, o with biases, and norms of queries and keys."""
    for name in ("q", "k", "v", "o"):
        yield from both(f"{ours}.{name}", f"{theirs}.{name}_proj", bias=name in mixer.bias)
    if mixer.qk_norm is not None:
        for name in ("q_norm", "k_norm"):
            yield same(f"{ours}.{name}.gain", f"{theirs}.{name}.weight")


def gated_weights(ffn: Dense, ours: str, theirs: str) -> Iterator[Pair]:
    """gate, up, down with biases."""
    for name in ("gate", "up", "down"):
        yield from both(f"{ours}.{name}", f"{theirs}.{name}_proj", bias=ffn.bias)


def pre_norms(ours: str, theirs: str) -> Iterator[Pair]:
    """Norms before the mixer and before the FFN."""
    yield same(f"{ours}.mixer_residual.norm_in.gain", f"{theirs}.input_layernorm.weight")
    yield same(f"{ours}.ffn_residual.norm_in.gain", f"{theirs}.post_attention_layernorm.weight")
