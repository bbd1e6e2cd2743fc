"""GPT-J and CodeGen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.errors import UnsupportedError
from zoo.hf._common import attention, expect, linears
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import UNREAD, OpenAILike, ends
from zoo.hf._pairs import Pair, fused, layernorm
from zoo.positions.rope import RoPE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class GPTJ(OpenAILike):
    """Wang & Komatsuzaki 2021, https://github.com/kingoflolz/mesh-transformer-jax."""

    model_types: ClassVar[tuple[str, ...]] = ("gptj",)

    model_fixed: ClassVar[SpecJson] = {"head_bias": True}
    block_fixed: ClassVar[SpecJson] = {"topology": "parallel"}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention"}

    def spec(self, config: Config) -> SpecJson:
        config.ignore(*UNREAD, "n_positions", "rotary", "scale_attn_weights")
        return super().spec(config)

    def position(self, config: Config) -> SpecJson:
        head_dim = config["n_embd"] // config["n_head"]
        turned = config["rotary_dim"]
        if not 0 < turned <= head_dim or turned % 2:
            raise UnsupportedError("rotary_dim", f"{turned} of {head_dim} features of a head cannot be turned")
        return {"kind": "rope", "layout": "interleaved", "fraction": fraction(turned, head_dim)}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        return {"rotary_dim": expect(mixer.position, RoPE, "mixer.position").turned(mixer.sizes()[2])}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from ends(spec)
        for i in range(spec.n_layers):
            ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
            yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.ln_1")
            yield from self.attention_weights(spec, f"{ours}.mixer", f"{theirs}.attn")
            names = {"up": "fc_in", "down": "fc_out"}
            yield from linears(f"{ours}.ffn", f"{theirs}.mlp", names, names)

    def attention_weights(self, spec: ModelSpec, ours: str, theirs: str) -> Iterator[Pair]:
        names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
        return linears(ours, theirs, names, ())


def fraction(turned: int, head_dim: int) -> float:
    """RoPE fraction with int(head_dim · fraction) = turned, whatever the rounding."""
    exact = turned / head_dim
    return exact if int(head_dim * exact) == turned else math.nextafter(exact, 1)


PARTS = 4
"""Stretches of its matrix of queries, values and keys: those of as many TPU cores."""


class CodeGen(GPTJ):
    """GPT-J with queries, values and keys in one matrix. Nijkamp et al. 2022, arXiv:2203.13474."""

    model_types: ClassVar[tuple[str, ...]] = ("codegen",)
    preference: ClassVar[int] = 2

    def spec(self, config: Config) -> SpecJson:
        config.ignore("n_ctx")
        return super().spec(config)

    def attention_weights(self, spec: ModelSpec, ours: str, theirs: str) -> Iterator[Pair]:
        parts = [f"{ours}.{name}.weight" for name in "qvk"]
        yield fused(parts, f"{theirs}.qkv_proj.weight", [spec.d_model // PARTS] * 3, PARTS)
        yield from linears(ours, theirs, {"o": "out_proj"}, ())
