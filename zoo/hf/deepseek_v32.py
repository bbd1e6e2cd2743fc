"""DeepSeek V3.2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.ffns.deepseek_moe import DeepSeekMoE
from zoo.hf._common import expect
from zoo.hf._config import Config, ConfigJson
from zoo.hf._fine_experts import EXPERTS
from zoo.hf._pairs import Pair, layernorm, same
from zoo.hf.deepseek_v3 import DeepSeekV3
from zoo.mixers.dsa import DeepSeekSparseAttention
from zoo.spec import ModelSpec

DENSE, SPARSE, INDEXED = "dense", "sparse", "indexed_attention"


class DeepSeekV32(DeepSeekV3):
    """DeepSeek V3 with sparse attention. DeepSeek-AI 2025, arXiv:2512.02556. Without the indexer's loss, which
    transformers does not have."""

    model_types: ClassVar[tuple[str, ...]] = ("deepseek_v32",)
    index_layout: ClassVar[str] = "half"

    def mixer(self, config: Config) -> SpecJson:
        config.only("layer_types", [INDEXED] * config["num_hidden_layers"])
        return {
            **super().mixer(config),
            "kind": "dsa",
            "index_layout": self.index_layout,
            "index_heads": config["index_n_heads"],
            "index_dim": config["index_head_dim"],
            "top_k": config["index_topk"],
            "index_loss": 0.0,
        }

    def interleaved(self, config: Config) -> bool:
        return True

    def ffn_kinds(self, config: Config) -> list[list[str]]:
        config.ignore("first_k_dense_replace")  # it says what mlp_layer_types are by default
        return [[EXPERTS] * (kind == SPARSE) for kind in config["mlp_layer_types"]]

    def ffn_kinds_config(self, spec: ModelSpec) -> ConfigJson:
        kinds = [SPARSE if isinstance(layer.ffn, DeepSeekMoE) else DENSE for layer in spec.layers]
        return {"mlp_layer_types": kinds}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = expect(layer.mixer, DeepSeekSparseAttention, "mixer")
        sizes = {"index_n_heads": mixer.index_heads, "index_head_dim": mixer.index_dim, "index_topk": mixer.top_k}
        return {**super().block_config(layer), **sizes}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        config = super().position_config(layer)
        config.pop("rope_interleave")
        return config

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().mixer_weights(layer, ours, theirs)
        for name, other in (("q", "wq_b"), ("k", "wk"), ("weights", "weights_proj")):
            yield same(f"{ours}.indexer.{name}.weight", f"{theirs}.indexer.{other}.weight")
        yield from layernorm(f"{ours}.indexer.k_norm", f"{theirs}.indexer.k_norm")
