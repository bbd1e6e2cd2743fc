"""Qwen 3."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf.qwen2 import Qwen2


class Qwen3(Qwen2):
    """Qwen 2 with a norm of each head's queries and keys, and other biases. Yang et al. 2025, arXiv:2505.09388."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3",)

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "bias": config["attention_bias"], "qk_norm": self.norm(config)}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "attention_bias": bool(attention(layer).bias)}
