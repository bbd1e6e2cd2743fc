"""DeepSeek V3.2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._config import Config, ConfigJson
from zoo.hf._fine_experts import ListedExperts
from zoo.hf._keys import Keys
from zoo.hf._pairs import Pair, layernorm, same
from zoo.hf.deepseek_v3 import DeepSeekV3
from zoo.mixers import Mixer
from zoo.mixers.dsa import DeepSeekSparseAttention
from zoo.settings.edits import SpecJson

INDEXED = "indexed_attention"


class DeepSeekV32(ListedExperts, DeepSeekV3):
    """DeepSeek V3 with sparse attention. DeepSeek-AI 2025, arXiv:2512.02556. Without the indexer's loss, which
    transformers does not have."""

    model_types: ClassVar[tuple[str, ...]] = ("deepseek_v32",)
    index_layout: ClassVar[str] = "half"
    mixer_class: ClassVar[type[Mixer]] = DeepSeekSparseAttention
    mixer_keys: ClassVar[Keys] = {
        **DeepSeekV3.mixer_keys,
        "index_n_heads": "index_heads",
        "index_head_dim": "index_dim",
        "index_topk": "top_k",
    }
    mixer_fixed: ClassVar[SpecJson] = {**DeepSeekV3.mixer_fixed, "kind": "dsa", "index_loss": 0.0}

    def mixer(self, config: Config) -> SpecJson:
        config.only("layer_types", [INDEXED] * config["num_hidden_layers"])
        return {**super().mixer(config), "index_layout": self.index_layout}

    def interleaved(self, config: Config) -> bool:
        return True

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        arguments = super().position_config(layer)
        del arguments["rope_interleave"]
        return arguments

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        yield from super().mixer_weights(layer, ours, theirs)
        for name, other in (("q", "wq_b"), ("k", "wk"), ("weights", "weights_proj")):
            yield same(f"{ours}.indexer.{name}.weight", f"{theirs}.indexer.{other}.weight")
        yield from layernorm(f"{ours}.indexer.k_norm", f"{theirs}.indexer.k_norm")
