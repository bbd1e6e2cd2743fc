"""LFM 2 with experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import gated_experts
from zoo.hf._keys import WIDTH, Key, Keys, read, write
from zoo.hf._pairs import Pair, same
from zoo.hf.lfm2 import Lfm2
from zoo.settings.edits import SpecJson


class Lfm2Moe(Lfm2):
    """LFM 2 with sigmoid experts after some dense layers. Liquid AI 2025, arXiv:2511.23404."""

    model_types: ClassVar[tuple[str, ...]] = ("lfm2_moe",)
    experts_class: ClassVar[type[MoE] | tuple[()]] = DeepSeekMoE
    expert_fixed: ClassVar[SpecJson] = {"kind": "deepseek_moe", "shared_experts": 0, "balance_loss": 0.0}
    expert_keys: ClassVar[Keys] = {
        "moe_intermediate_size": WIDTH,
        "num_experts": "experts",
        "num_experts_per_tok": "top_k",
        "norm_topk_prob": "normalise",
        "routed_scaling_factor": Key("scale", float),
        "use_expert_bias": Key("bias_rate", lambda there: 1e-3 if there else None, lambda rate: rate is not None),
    }

    def sparse(self, config: Config) -> list[bool]:
        return [i >= config["num_dense_layers"] for i in range(config["num_hidden_layers"])]

    def ffn(self, config: Config) -> SpecJson:
        return {"kind": "swiglu", **read(self.ffn_keys, config)}

    def experts(self, config: Config) -> SpecJson:
        return {**self.expert_fixed, **read(self.expert_keys, config)}

    def sparse_config(self, sparse: list[bool]) -> ConfigJson:
        return {"num_dense_layers": sparse.index(True) if any(sparse) else len(sparse)}

    def ffn_config(self, layer: BlockSpec) -> ConfigJson:
        sparse = isinstance(layer.ffn, DeepSeekMoE)
        return write(self.expert_keys if sparse else self.ffn_keys, layer.ffn, "ffn")

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if not isinstance(layer.ffn, DeepSeekMoE):
            yield from super().ffn_weights(layer, ours, theirs)
            return
        theirs, moe = theirs.removesuffix("mlp") + "feed_forward", expect(layer.ffn, DeepSeekMoE, "ffn")
        yield same(f"{ours}.router.weight", f"{theirs}.gate.weight")
        if moe.bias_rate is not None:
            yield same(f"{ours}.router.selection_bias", f"{theirs}.expert_bias")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", moe.width, moe.experts, ("w1", "w3", "w2"))
