"""Hunyuan-A13B."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import expert_act, gated_experts
from zoo.hf._ffn import name_of
from zoo.hf._pairs import Pair, same
from zoo.hf.hunyuan_v1_dense import Hunyuan


class HunyuanMoe(Hunyuan):
    """Experts and a shared one in every layer. Tencent 2025, https://github.com/Tencent-Hunyuan/Hunyuan-A13B."""

    model_types: ClassVar[tuple[str, ...]] = ("hunyuan_v1_moe",)

    def ffn(self, config: Config) -> SpecJson:
        config.ignore("output_router_logits")
        kind, experts, top_k = super().ffn(config), config["num_experts"], config["moe_topk"]
        by_layer = set(top_k[: config["num_hidden_layers"]] if isinstance(top_k, list) else [top_k])
        if len(by_layer) != 1:
            raise UnsupportedError("moe_topk", f"{top_k} cannot be converted, only the same number for every layer")
        return {
            "kind": "topk_moe",
            "activation": name_of(**kind),
            "d_ff": kind["d_ff"],
            "experts": experts,
            "top_k": by_layer.pop(),
            "shared_experts": 1,
            "balance_loss": 0.0,
        }

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        experts = expect(layer.ffn, TopKMoE, "ffn")
        sizes = {"intermediate_size": experts.width, "num_experts": experts.experts, "moe_topk": experts.top_k}
        return {"hidden_act": expert_act(experts), **sizes}

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        experts = expect(layer.ffn, TopKMoE, "ffn")
        yield same(f"{ours}.router.weight", f"{theirs}.gate.wg.weight")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", experts.width, experts.experts)
        for part in ("gate", "up", "down"):
            yield same(f"{ours}.shared.{part}.weight", f"{theirs}.shared_mlp.{part}_proj.weight")
