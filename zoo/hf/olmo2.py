"""OLMo 2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, same


class Olmo2(LlamaLike):
    """x + norm(f(x)), with a norm over the full width of queries and keys. OLMo et al. 2025, arXiv:2501.00656."""

    model_types: ClassVar[tuple[str, ...]] = ("olmo2",)

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "norm_placement": "output"}

    def mixer(self, config: Config) -> SpecJson:
        norm = {"qk_norm": self.norm(config), "qk_norm_over": "full"}
        return {**super().mixer(config), "bias": config["attention_bias"], **norm}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "attention_bias": bool(attention(layer).bias)}

    def norm_weights(self, ours: str, theirs: str) -> Iterator[Pair]:
        yield same(f"{ours}.mixer_residual.norm_out.gain", f"{theirs}.post_attention_layernorm.weight")
        yield same(f"{ours}.ffn_residual.norm_out.gain", f"{theirs}.post_feedforward_layernorm.weight")
