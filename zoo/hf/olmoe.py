"""OLMoE."""

from __future__ import annotations

from typing import ClassVar

from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import BIAS, WIDTH, Keys, without
from zoo.hf._qwen_experts import QwenExperts


class Olmoe(QwenExperts):
    """Experts in every layer, and a norm over the full width of queries and keys. Muennighoff et al. 2024,
    arXiv:2409.02060."""

    model_types: ClassVar[tuple[str, ...]] = ("olmoe",)
    mixer_keys: ClassVar[Keys] = {**QwenExperts.mixer_keys, "attention_bias": BIAS}
    expert_keys: ClassVar[Keys] = {
        **without(QwenExperts.expert_keys, "moe_intermediate_size"),
        "intermediate_size": WIDTH,
    }

    def sparse(self, config: Config) -> list[bool]:
        return [True] * int(config["num_hidden_layers"])

    def mixer(self, config: Config) -> SpecJson:
        config.only("clip_qkv", None)  # transformers clips behind the norm
        return {**super().mixer(config), "qk_norm": self.norm(config), "qk_norm_over": "full"}

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        if not all(sparse):
            raise UnsupportedError("ffn", "every layer has experts")
        return {}
