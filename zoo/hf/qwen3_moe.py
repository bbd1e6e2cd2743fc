"""Qwen 3 with experts: Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import BIAS, Keys
from zoo.hf._qwen_experts import QwenExperts
from zoo.settings.edits import SpecJson


class Qwen3Moe(QwenExperts):
    """Qwen 3's attention, a window on all layers or none, and experts. Yang et al. 2025, arXiv:2505.09388."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3_moe",)
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {**QwenExperts.mixer_keys, "attention_bias": BIAS, "sliding_window": "window"}

    def mixer(self, config: Config) -> SpecJson:
        config.ignore("use_sliding_window", "max_window_layers")  # the window is null where it is not used
        return super().mixer(config)

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "use_sliding_window": attention(layer).window is not None}
