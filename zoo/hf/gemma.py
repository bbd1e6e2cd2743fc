"""Gemma."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._llama_like import LlamaLike


class Gemma(LlamaLike):
    """Llama with gains of 1 + w and embeddings times √D. Gemma Team 2024, arXiv:2403.08295."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma",)

    def spec(self, config: Config) -> SpecJson:
        # Each generation reads one of two names; published configs have both.
        config.ignore("hidden_act", "hidden_activation")
        config.only("use_bidirectional_attention", None, False)
        return {**super().spec(config), "embedding_scale": "sqrt_d_model"}

    def norm(self, config: Config) -> SpecJson:
        return {**super().norm(config), "unit_offset": True}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "bias": config["attention_bias"]}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "attention_bias": bool(attention(layer).bias)}
