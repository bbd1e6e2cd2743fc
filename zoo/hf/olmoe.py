"""OLMoE."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config
from zoo.hf._keys import BIAS, WIDTH, Keys, without
from zoo.hf._layered import ExpertsEverywhere
from zoo.hf._qwen_experts import QwenExperts
from zoo.settings.edits import SpecJson


class Olmoe(ExpertsEverywhere, QwenExperts):
    """Experts in every layer, and a norm over the full width of queries and keys. Muennighoff et al. 2024,
    arXiv:2409.02060."""

    model_types: ClassVar[tuple[str, ...]] = ("olmoe",)
    qk_norm: ClassVar[SpecJson | None] = {"qk_norm_over": "full"}
    mixer_keys: ClassVar[Keys] = {**QwenExperts.mixer_keys, "attention_bias": BIAS}
    expert_keys: ClassVar[Keys] = {
        **without(QwenExperts.expert_keys, "moe_intermediate_size"),
        "intermediate_size": WIDTH,
    }

    def mixer(self, config: Config) -> SpecJson:
        config.only("clip_qkv", None)  # transformers clips behind the norm
        return super().mixer(config)
