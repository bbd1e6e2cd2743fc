"""GPT-J and CodeGen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._config import Config, ConfigJson
from zoo.hf._family import Pair, fused_layers
from zoo.hf._gpt import UNREAD, OpenAILike
from zoo.hf._layers import PROJECTIONS, attention, expect, linears
from zoo.positions.rope import RoPE
from zoo.settings.edits import SpecJson


class GPTJ(OpenAILike):
    """GPT-J. Wang & Komatsuzaki 2021, https://github.com/kingoflolz/mesh-transformer-jax."""

    model_types: ClassVar[tuple[str, ...]] = ("gptj",)
    ignored: ClassVar[tuple[str, ...]] = (*UNREAD, "n_positions", "rotary", "scale_attn_weights")

    model_fixed: ClassVar[SpecJson] = {"head_bias": True}
    block_fixed: ClassVar[SpecJson] = {"topology": "parallel"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention"}
    norm_names: ClassVar[Mapping[str, str]] = {"mixer_residual.norm_in": "ln_1"}
    mixer_names: ClassVar[Mapping[str, str]] = {**PROJECTIONS, "o": "out_proj"}
    ffn_names: ClassVar[Mapping[str, str]] = {"up": "fc_in", "down": "fc_out"}

    def position(self, config: Config) -> SpecJson:
        head_dim = config["n_embd"] // config["n_head"]
        turned = config["rotary_dim"]
        if not 0 < turned <= head_dim or turned % 2:
            raise UnsupportedError("rotary_dim", f"{turned} of a head's {head_dim} features cannot be rotated")
        return {"kind": "rope", "layout": "interleaved", "fraction": fraction(turned, head_dim)}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        return {"rotary_dim": expect(mixer.position, RoPE, "mixer.position").turned(mixer.sizes()[2])}


def fraction(turned: int, head_dim: int) -> float:
    """RoPE fraction with int(head_dim · fraction) = turned, despite rounding."""
    exact = turned / head_dim
    return exact if int(head_dim * exact) == turned else math.nextafter(exact, 1)


PARTS = 4
"""Runs of rows in CodeGen's matrix of queries, values and keys: one per TPU core in training."""


class CodeGen(GPTJ):
    """GPT-J with queries, values and keys in one matrix. Nijkamp et al. 2022, arXiv:2203.13474."""

    model_types: ClassVar[tuple[str, ...]] = ("codegen",)
    ignored: ClassVar[tuple[str, ...]] = ("n_ctx",)
    preference: ClassVar[int] = 2

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        heads, _, head_dim = attention(layer).sizes()
        yield from fused_layers(ours, "qvk", f"{theirs}.qkv_proj", [heads * head_dim // PARTS] * 3, PARTS)
        yield from linears(ours, theirs, {"o": "out_proj"}, ())
