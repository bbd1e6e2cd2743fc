"""Hunyuan-A13B."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.errors import UnsupportedError
from zoo.ffns._moe import MoE
from zoo.ffns.topk_moe import TopKMoE
from zoo.hf._config import Config
from zoo.hf._experts import PARTS, gated_experts
from zoo.hf._keys import WIDTH, Keys
from zoo.hf._pairs import Pair, same
from zoo.hf.hunyuan_v1_dense import Hunyuan
from zoo.settings.edits import SpecJson


class HunyuanMoe(Hunyuan):
    """Experts and a shared one in every layer. Tencent 2025, https://github.com/Tencent-Hunyuan/Hunyuan-A13B."""

    model_types: ClassVar[tuple[str, ...]] = ("hunyuan_v1_moe",)
    experts_class: ClassVar[type[MoE]] = TopKMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "topk_moe", "shared_experts": 1, "balance_loss": 0.0}
    expert_keys: ClassVar[Keys] = {"intermediate_size": WIDTH, "num_experts": "experts", "moe_topk": "top_k"}

    def ffn(self, config: Config) -> SpecJson:
        config.ignore("output_router_logits")
        experts, layers = self.experts(config), config["num_hidden_layers"]
        top_k = experts["top_k"]
        by_layer = set(top_k[:layers] if isinstance(top_k, list) else [top_k])
        if len(by_layer) != 1:
            raise UnsupportedError("moe_topk", f"{top_k} cannot be converted, only the same number for every layer")
        return {**experts, "top_k": by_layer.pop()}

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        yield same(f"{ours}.router.weight", f"{theirs}.gate.wg.weight")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", moe.width, moe.experts)
        for part in PARTS:
            yield same(f"{ours}.shared.{part}.weight", f"{theirs}.shared_mlp.{part}_proj.weight")
