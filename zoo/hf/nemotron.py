"""Nemotron-4 and Minitron."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention, dense, norm_eps
from zoo.hf._config import Config, ConfigJson
from zoo.hf._ffn import activation, ffn
from zoo.hf._gpt import linears
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, layernorm
from zoo.spec import ModelSpec


class Nemotron(LlamaLike):
    """Llama with LayerNorm whose gains are stored less one, partial RoPE and squared ReLU. Parmar et al. 2024,
    arXiv:2402.16819."""

    model_types: ClassVar[tuple[str, ...]] = ("nemotron",)
    partial_rotary: ClassVar[bool] = True

    def norm(self, config: Config) -> SpecJson:
        return {"kind": "layernorm", "eps": config["norm_eps"], "unit_offset": True}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "bias": config["attention_bias"]}

    def ffn(self, config: Config) -> SpecJson:
        kind = ffn(config, "hidden_act", gated=False)
        return {**kind, "d_ff": config["intermediate_size"], "bias": config["mlp_bias"]}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "attention_bias": bool(attention(layer).bias)}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        shape = {"intermediate_size": dense(layer).width, "mlp_bias": dense(layer).bias}
        return {"hidden_act": activation(layer.ffn, gated=False), **shape}

    def norm_config(self, layer: BlockSpec) -> ConfigJson:
        return {"norm_eps": norm_eps(layer)}

    def final_norm_weights(self, spec: ModelSpec) -> Iterator[Pair]:
        return layernorm("norm", "model.norm")

    def norm_weights(self, ours: str, theirs: str) -> Iterator[Pair]:
        yield from layernorm(f"{ours}.mixer_residual.norm_in", f"{theirs}.input_layernorm")
        yield from layernorm(f"{ours}.ffn_residual.norm_in", f"{theirs}.post_attention_layernorm")

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        names = {"up": "up_proj", "down": "down_proj"}
        yield from linears(ours, theirs, names, names if dense(layer).bias else ())
