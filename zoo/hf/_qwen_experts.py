"""Qwen's experts: on every n-th layer but for some, with a shared expert behind a gate where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import expert_act, gated_experts
from zoo.hf._ffn import name_of
from zoo.hf._layered import Layered
from zoo.hf._pairs import Pair, same
from zoo.spec import ModelSpec

EXPERTS = "experts"
PARTS = ("gate", "up", "down")


class QwenExperts(Layered):
    """Llama's block with experts in some layers."""

    width_key: ClassVar[str] = "moe_intermediate_size"
    """Where a config has the hidden features of an expert."""

    def ffn_kinds(self, config: Config) -> list[list[str]]:
        return [[EXPERTS] * has_experts for has_experts in self.sparse(config)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), EXPERTS: {"ffn": self.experts(config)}}

    def sparse(self, config: Config) -> list[bool]:
        """Which layers have experts."""
        dense, every = config.get("mlp_only_layers") or (), config["decoder_sparse_step"]
        any_at_all, layers = config["num_experts"] > 0, config["num_hidden_layers"]
        return [any_at_all and i not in dense and (i + 1) % every == 0 for i in range(layers)]

    def experts(self, config: Config) -> SpecJson:
        """The FFN of layers with experts, without a shared one."""
        kind, weight = super().ffn(config), config["router_aux_loss_coef"]
        if not config["output_router_logits"]:
            weight = 0.0
        return {
            "kind": "topk_moe",
            "activation": name_of(**kind),
            "d_ff": config[self.width_key],
            # A model of dense layers only may say that there are none.
            "experts": config["num_experts"] or config["num_experts_per_tok"],
            "top_k": config["num_experts_per_tok"],
            "softmax_over": "chosen" if config["norm_topk_prob"] else "all",
            "balance_loss": weight * config["num_experts_per_tok"] / config["num_hidden_layers"],
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        sparse = [isinstance(layer.ffn, TopKMoE) for layer in spec.layers]
        widths = {key: value for layer in spec.layers for key, value in self.ffn_config(layer).items()}
        dense = [i for i, has_experts in enumerate(sparse) if not has_experts]
        return {**super().config(spec), **widths, "mlp_only_layers": dense, "decoder_sparse_step": 1}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        moe = layer.ffn
        if not isinstance(moe, TopKMoE):
            return super().ffn_config(layer)
        return {
            "hidden_act": expert_act(moe),
            self.width_key: moe.width,
            "num_experts": moe.experts,
            "num_experts_per_tok": moe.top_k,
            "norm_topk_prob": moe.softmax_over == "chosen",
        }

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        moe = layer.ffn
        if not isinstance(moe, TopKMoE):
            yield from super().ffn_weights(layer, ours, theirs)
            return
        yield same(f"{ours}.router.weight", f"{theirs}.gate.weight")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", moe.width, moe.experts)
        if moe.shared_experts:
            for name in PARTS:
                yield same(f"{ours}.shared.{name}.weight", f"{theirs}.shared_expert.{name}_proj.weight")
            yield same(f"{ours}.shared_gate.weight", f"{theirs}.shared_expert_gate.weight")


class QwenSharedExperts(QwenExperts):
    """With a shared expert."""

    def experts(self, config: Config) -> SpecJson:
        shared = config["shared_expert_intermediate_size"]
        if not shared:
            raise UnsupportedError("shared_expert_intermediate_size", "a shared expert has features")
        return {**super().experts(config), "shared_experts": 1, "shared_d_ff": shared, "shared_gate": True}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        moe = layer.ffn
        shared = {"shared_expert_intermediate_size": moe.shared_width} if isinstance(moe, TopKMoE) else {}
        return {**super().ffn_config(layer), **shared}
