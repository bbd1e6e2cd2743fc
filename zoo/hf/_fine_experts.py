"""DeepSeek's experts after some dense layers, whatever the layers attend with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import expert_act, gated_experts
from zoo.hf._ffn import name_of
from zoo.hf._layered import Layered
from zoo.hf._pairs import Pair, Tensors, both, same
from zoo.spec import ModelSpec

EXPERTS = "experts"
PARTS = ("gate", "up", "down")


class FineExperts(Layered):
    """Llama's block with dense layers first and DeepSeek-V3's mixture of experts in the others.

    transformers' models have no multi-token prediction, whatever the config says of it.
    """

    count_key: ClassVar[str] = "n_routed_experts"
    """Where a config has the number of experts."""
    scoring: ClassVar[tuple[str, ...]] = ("sigmoid",)
    """Values of `scoring_func`, which transformers does not read, that name sigmoid scores."""

    def spec(self, config: Config) -> SpecJson:
        # What training adds, how work is divided, and modules that look ahead.
        config.ignore("aux_loss_alpha", "seq_aux", "ep_size", "output_router_logits")
        config.ignore("num_nextn_predict_layers", "num_mtp_layers")
        return super().spec(config)

    def ffn_kinds(self, config: Config) -> list[list[str]]:
        config.only("moe_layer_freq", 1)
        dense = config["first_k_dense_replace"] or 0
        return [[EXPERTS] * (i >= dense) for i in range(config["num_hidden_layers"])]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), EXPERTS: {"ffn": self.experts(config)}}

    def experts(self, config: Config) -> SpecJson:
        """The FFN of layers with experts."""
        config.only("scoring_func", *self.scoring)
        config.only("topk_method", "noaux_tc")
        return self.shared_and_fine(config) | {
            "score": "sigmoid",
            "groups": config["n_group"],
            "top_groups": config["topk_group"],
            "normalise": config["norm_topk_prob"],
        }

    def shared_and_fine(self, config: Config) -> SpecJson:
        """Settings that V2 and V3 share. Without balance losses, which transformers does not have."""
        kind, shared = super().ffn(config), config["n_shared_experts"]
        if shared == 0 and config.get("mlp_bias"):
            raise UnsupportedError("n_shared_experts", "no expert is shared, but transformers adds a bias of theirs")
        return {
            "kind": "deepseek_moe",
            "activation": name_of(**kind),
            "d_ff": config["moe_intermediate_size"],
            "experts": config[self.count_key],
            "top_k": config["num_experts_per_tok"],
            "shared_experts": shared,
            "scale": float(config["routed_scaling_factor"]),
            "balance_loss": 0.0,
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        widths = {key: value for layer in spec.layers for key, value in self.ffn_config(layer).items()}
        return {**super().config(spec), **widths, **self.ffn_kinds_config(spec)}

    def ffn_kinds_config(self, spec: ModelSpec) -> ConfigJson:
        """Arguments that say which layers have experts."""
        sparse = [isinstance(layer.ffn, DeepSeekMoE) for layer in spec.layers]
        return {"first_k_dense_replace": sparse.index(True) if any(sparse) else spec.n_layers}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        moe = layer.ffn
        if not isinstance(moe, DeepSeekMoE):
            return super().ffn_config(layer)
        return {
            "hidden_act": expert_act(moe),
            "moe_intermediate_size": moe.width,
            self.count_key: moe.experts,
            "num_experts_per_tok": moe.top_k,
            "n_shared_experts": moe.shared_experts,
            "routed_scaling_factor": moe.scale,
            **self.grouping(moe),
        }

    def grouping(self, moe: DeepSeekMoE) -> ConfigJson:
        return {"n_group": moe.groups, "topk_group": moe.top_groups, "norm_topk_prob": moe.normalise}

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        moe = layer.ffn
        if not isinstance(moe, DeepSeekMoE):
            yield from super().ffn_weights(layer, ours, theirs)
            return
        shared = [f"{theirs}.shared_experts.{name}_proj" for name in PARTS]
        if moe.shared_experts == 0:
            yield _with_empty(f"{ours}.router.weight", f"{theirs}.gate.weight", [f"{name}.weight" for name in shared])
        else:
            yield same(f"{ours}.router.weight", f"{theirs}.gate.weight")
            for part, name in zip(PARTS, shared, strict=True):
                yield from both(f"{ours}.shared.{part}", name, bias=moe.shared_bias)
        if moe.bias_rate is not None:
            yield same(f"{ours}.router.selection_bias", f"{theirs}.gate.e_score_correction_bias")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", moe.width, moe.experts)


def _with_empty(ours: str, theirs: str, empty: Sequence[str]) -> Pair:
    """A matrix of ours is one of theirs, which has gate, up and down matrices of no features beside it."""

    def write(x: Tensors) -> Tensors:
        none = x[0].new_zeros(0, x[0].shape[1])
        return [x[0], none, none, none.T]

    return Pair((ours,), (theirs, *empty), lambda x: x[:1], write)
