"""Youtu-LLM."""

from __future__ import annotations

from typing import ClassVar

from zoo.ffns._moe import MoE
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import Keys
from zoo.hf.deepseek_v3 import DeepSeekV3
from zoo.settings.edits import SpecJson


class Youtu(DeepSeekV3):
    """DeepSeek-V3's latent attention with dense FFNs. Tencent 2025, https://huggingface.co/tencent/Youtu-LLM-2B."""

    model_types: ClassVar[tuple[str, ...]] = ("youtu",)
    preference: ClassVar[int] = 3
    experts_class: ClassVar[type[MoE] | tuple[()]] = ()
    expert_keys: ClassVar[Keys] = {}

    def spec(self, config: Config) -> SpecJson:
        config.ignore("embedding_initializer_range", "mlp_bias", "rope_interleave")
        return super().spec(config)

    def sparse(self, config: Config) -> list[bool]:
        return [False] * int(config["num_hidden_layers"])

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {}
