"""Flint."""

from __future__ import annotations

from typing import ClassVar

from zoo.ffns._moe import MoE
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._config import Config
from zoo.hf._experts import BESIDE_SHARED, require_shared
from zoo.hf._keys import BIAS, Keys
from zoo.hf._qwen_experts import QwenExperts
from zoo.hf._rope_by_layer import NearRoPE
from zoo.settings.edits import SpecJson


class Flint(NearRoPE, QwenExperts):
    """Sinks, a norm of each head's queries and keys, windows with RoPE and full attention without, sigmoid experts and
    a shared one. https://huggingface.co/RecursiveSI/flint."""

    model_types: ClassVar[tuple[str, ...]] = ("flint",)
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {**QwenExperts.mixer_keys, "attention_bias": BIAS}
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "sinks": True}
    experts_class: ClassVar[type[MoE] | tuple[()]] = DeepSeekMoE
    # Its balance loss is over the softmax of scores whose sigmoids choose, which ours has no name for.
    expert_fixed: ClassVar[SpecJson] = {"kind": "deepseek_moe", "bias_rate": None, "balance_loss": 0.0}
    expert_keys: ClassVar[Keys] = BESIDE_SHARED
    shared_name: ClassVar[str] = "shared_expert"

    def experts(self, config: Config) -> SpecJson:
        require_shared(config)
        return {**super().experts(config), "shared_experts": 1, "balance_loss": 0.0}
