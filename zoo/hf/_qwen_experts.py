"""Qwen's experts in some layers, whatever the layers attend with."""

from __future__ import annotations

from typing import ClassVar

from zoo.ffns._moe import MoE
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import EXPERT_SIZES, SHARED, SHARED_WIDTH, balance_loss, require_shared
from zoo.hf._keys import Key, Keys
from zoo.hf._layered import Layered
from zoo.settings.edits import SpecJson


class QwenExperts(Layered):
    """Llama's block with experts in some layers."""

    experts_class: ClassVar[type[MoE] | tuple[()]] = TopKMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "topk_moe"}
    expert_keys: ClassVar[Keys] = {
        **EXPERT_SIZES,
        "norm_topk_prob": Key("softmax_over", lambda own: "chosen" if own else "all", lambda over: over == "chosen"),
    }

    def sparse(self, config: Config) -> list[bool]:
        dense, every = config.get("mlp_only_layers") or (), config["decoder_sparse_step"]
        any_at_all, layers = config["num_experts"] > 0, config["num_hidden_layers"]
        return [any_at_all and i not in dense and (i + 1) % every == 0 for i in range(layers)]

    def experts(self, config: Config) -> SpecJson:
        experts = super().experts(config)
        # A model of dense layers only may say that there are none.
        return {**experts, "experts": experts["experts"] or experts["top_k"], "balance_loss": balance_loss(config)}

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {"mlp_only_layers": [i for i, there in enumerate(sparse) if not there], "decoder_sparse_step": 1}


class QwenSharedExperts(QwenExperts):
    """With a shared expert."""

    expert_fixed: ClassVar[SpecJson] = {"kind": "topk_moe", "shared_experts": 1, "shared_gate": True}
    expert_keys: ClassVar[Keys] = {
        **QwenExperts.expert_keys,
        SHARED: SHARED_WIDTH,
    }
    shared_name: ClassVar[str] = "shared_expert"

    def experts(self, config: Config) -> SpecJson:
        require_shared(config)
        return super().experts(config)
