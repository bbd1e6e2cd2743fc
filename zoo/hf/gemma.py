"""Gemma."""

from __future__ import annotations

from typing import Any, ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._config import Config
from zoo.hf._llama_like import LlamaLike


class Gemma(LlamaLike):
    """Llama with gains of 1 + w and embeddings times √D. Gemma Team 2024, arXiv:2403.08295."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma",)

    def spec(self, config: Config) -> dict[str, Any]:
        # Each generation reads one of two names; published configs have both.
        config.ignore("hidden_act", "hidden_activation")
        config.only("use_bidirectional_attention", None, False)
        return {**super().spec(config), "embedding_scale": "sqrt_d_model"}

    def norm(self, config: Config) -> dict[str, Any]:
        return {**super().norm(config), "unit_offset": True}

    def mixer(self, config: Config) -> dict[str, Any]:
        return {**super().mixer(config), "bias": config["attention_bias"]}

    def block_config(self, layer: BlockSpec) -> dict[str, Any]:
        return {**super().block_config(layer), "attention_bias": bool(attention(layer).bias)}
