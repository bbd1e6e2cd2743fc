"""GLM-4.5, GLM-4.6 and GLM-4.7."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._fine_experts import FineExperts
from zoo.hf._gpt import QKV


class Glm4Moe(FineExperts):
    """Attention with partial RoPE, DeepSeek-V3's experts after some dense layers. GLM Team 2025, arXiv:2508.06471."""

    model_types: ClassVar[tuple[str, ...]] = ("glm4_moe",)
    partial_rotary: ClassVar[bool] = True

    def mixer(self, config: Config) -> SpecJson:
        norm = self.norm(config) if config["use_qk_norm"] else None
        bias = list(QKV) if config["attention_bias"] else False
        return {**super().mixer(config), "bias": bias, "qk_norm": norm}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        own = {"attention_bias": bool(mixer.bias), "use_qk_norm": mixer.qk_norm is not None}
        return {**super().block_config(layer), **own}
