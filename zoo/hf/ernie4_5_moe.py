"""ERNIE 4.5 with experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import expert_act, gated_experts
from zoo.hf._ffn import name_of
from zoo.hf._layered import Layered
from zoo.hf._pairs import Pair, both, reshaped, same
from zoo.hf.ernie4_5 import Ernie
from zoo.spec import ModelSpec

EXPERTS = "experts"
PARTS = ("gate", "up", "down")


class ErnieMoe(Ernie, Layered):
    """Softmax scores, a bias that balances, shared experts. Baidu 2025,
    https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf."""

    model_types: ClassVar[tuple[str, ...]] = ("ernie4_5_moe",)

    def spec(self, config: Config) -> SpecJson:
        config.ignore("output_router_logits", "router_aux_loss_coef")
        return {**super().spec(config), "head_bias": config["use_bias"]}

    def ffn_kinds(self, config: Config) -> list[list[str]]:
        start, end = config["moe_layer_start_index"], config["moe_layer_end_index"]
        every, layers = config["moe_layer_interval"], config["num_hidden_layers"]
        return [[EXPERTS] * (start <= i <= end and (i + 1) % every == 0) for i in range(layers)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {EXPERTS: {"ffn": self._experts(config)}}

    def _experts(self, config: Config) -> SpecJson:
        config.only("moe_norm_min", 1e-12)
        return {
            "kind": "deepseek_moe",
            "activation": name_of(**super().ffn(config)),
            "d_ff": config["moe_intermediate_size"],
            "experts": config["moe_num_experts"],
            "top_k": config["moe_k"],
            "shared_experts": config["moe_num_shared_experts"],
            "shared_bias": config["use_bias"] and config["moe_num_shared_experts"] > 0,
            "score": "softmax",
            "normalise": True,
            "balance_loss": 0.0,
        }

    def config(self, spec: ModelSpec) -> ConfigJson:
        sparse = [i for i, layer in enumerate(spec.layers) if isinstance(layer.ffn, DeepSeekMoE)]
        start, end = (sparse[0], sparse[-1]) if sparse else (spec.n_layers, spec.n_layers)
        every = sparse[1] - sparse[0] if len(sparse) > 1 else start + 1
        place = {"moe_layer_start_index": start, "moe_layer_end_index": end, "moe_layer_interval": every}
        widths = {key: value for layer in spec.layers for key, value in self.ffn_config(layer).items()}
        return {**super().config(spec), **widths, **place}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        moe = layer.ffn
        if not isinstance(moe, DeepSeekMoE):
            return super().ffn_config(layer)
        if moe.bias_rate is None:
            raise UnsupportedError("ffn.bias_rate", "ERNIE's experts have a bias that balances")
        return {
            "hidden_act": expert_act(moe),
            "moe_intermediate_size": moe.width,
            "moe_num_experts": moe.experts,
            "moe_k": moe.top_k,
            "moe_num_shared_experts": moe.shared_experts,
        }

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from super().weights(spec)
        if spec.head_bias:
            yield same("head_bias", "lm_head.bias")

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        moe = layer.ffn
        if not isinstance(moe, DeepSeekMoE):
            yield from super().ffn_weights(layer, ours, theirs)
            return
        yield same(f"{ours}.router.weight", f"{theirs}.gate.weight")
        shape = (moe.experts,)
        bias = f"{theirs}.gate.moe_statics.e_score_correction_bias"
        yield reshaped(f"{ours}.router.selection_bias", bias, shape, (1, *shape))
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", moe.width, moe.experts)
        for part in PARTS if moe.shared_experts else ():
            yield from both(f"{ours}.shared.{part}", f"{theirs}.shared_experts.{part}_proj", bias=moe.shared_bias)
