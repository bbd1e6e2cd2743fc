"""Llama, Llama 2, Llama 3 and all that share their config: Yi, DeepSeek LLM, SmolLM2."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention, dense
from zoo.hf._config import Config, ConfigJson
from zoo.hf._llama_like import LlamaLike


class Llama(LlamaLike):
    """Touvron et al. 2023, arXiv:2302.13971."""

    model_types: ClassVar[tuple[str, ...]] = ("llama",)
    preference: ClassVar[int] = 0

    def spec(self, config: Config) -> SpecJson:
        # transformers does not read them.
        config.ignore("is_llama_config", "max_sequence_length", "transformers.js_config")
        return super().spec(config)

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "bias": config["attention_bias"]}

    def ffn(self, config: Config) -> SpecJson:
        return {**super().ffn(config), "bias": config["mlp_bias"]}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        biases = {"attention_bias": bool(attention(layer).bias), "mlp_bias": dense(layer).bias}
        return {**super().block_config(layer), **biases}
