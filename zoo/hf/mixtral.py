"""Mixtral."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import expert_act, gated_experts
from zoo.hf._ffn import name_of
from zoo.hf._pairs import Pair, same
from zoo.hf._version import MAJOR
from zoo.hf.mistral import Mistral


class Mixtral(Mistral):
    """Mistral with experts. Jiang et al. 2024, arXiv:2401.04088.

    transformers takes the balance loss of all layers at once, ours is the mean over them.
    """

    model_types: ClassVar[tuple[str, ...]] = ("mixtral",)

    def ffn(self, config: Config) -> SpecJson:
        kind = super().ffn(config)
        return {"kind": "topk_moe", "d_ff": kind["d_ff"], "activation": name_of(**kind), **routing(config)}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        experts = expect(layer.ffn, TopKMoE, "ffn")
        return {"hidden_act": expert_act(experts), **routing_config(experts)}

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        experts = expect(layer.ffn, TopKMoE, "ffn")
        if MAJOR < 5:
            theirs = theirs.removesuffix("mlp") + "block_sparse_moe"
        yield same(f"{ours}.router.weight", f"{theirs}.gate.weight")
        modules = ("w1", "w3", "w2")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", experts.width, experts.experts, modules)


def routing(config: Config) -> SpecJson:
    """Routing of tokens to experts, and the balance loss, which the model has if it outputs router logits."""
    top_k, weight = config["num_experts_per_tok"], config["router_aux_loss_coef"]
    if not config["output_router_logits"]:
        weight = 0.0
    return {
        "experts": config["num_local_experts"],
        "top_k": top_k,
        "balance_loss": weight * top_k / config["num_hidden_layers"],
    }


def routing_config(experts: TopKMoE) -> ConfigJson:
    """Arguments of a config class."""
    return {
        "intermediate_size": experts.width,
        "num_local_experts": experts.experts,
        "num_experts_per_tok": experts.top_k,
    }
