"""Qwen 3.5, the language model with experts."""

from __future__ import annotations

from typing import ClassVar

from zoo.ffns._moe import MoE
from zoo.hf._config import Config
from zoo.hf._keys import Keys, without
from zoo.hf._layered import ExpertsEverywhere
from zoo.hf._qwen_experts import QwenSharedExperts
from zoo.hf.qwen3_5_text import Qwen35
from zoo.settings.edits import SpecJson


class Qwen35Moe(ExpertsEverywhere, Qwen35):
    """Qwen 3.5 with experts and a shared one in every layer. Qwen Team 2026,
    https://huggingface.co/Qwen/Qwen3.5-35B-A3B."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3_5_moe_text",)
    experts_class: ClassVar[type[MoE] | tuple[()]] = QwenSharedExperts.experts_class
    expert_fixed: ClassVar[SpecJson] = {**QwenSharedExperts.expert_fixed, "softmax_over": "chosen"}
    expert_keys: ClassVar[Keys] = without(QwenSharedExperts.expert_keys, "norm_topk_prob")

    def ffn(self, config: Config) -> SpecJson:
        return self.experts(config)
