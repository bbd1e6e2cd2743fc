"""GLM-4.5, GLM-4.6 and GLM-4.7."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._fine_experts import FineExperts
from zoo.hf._keys import QKV_BIAS, Keys
from zoo.settings.edits import SpecJson


class Glm4Moe(FineExperts):
    """Attention with partial RoPE, DeepSeek-V3's experts after some dense layers. GLM Team 2025, arXiv:2508.06471."""

    model_types: ClassVar[tuple[str, ...]] = ("glm4_moe",)
    partial_rotary: ClassVar[bool] = True
    mixer_keys: ClassVar[Keys] = {**FineExperts.mixer_keys, "attention_bias": QKV_BIAS}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "qk_norm": self.norm(config) if config["use_qk_norm"] else None}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "use_qk_norm": attention(layer).qk_norm is not None}
