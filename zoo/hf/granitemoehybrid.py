"""Granite 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.hf._common import dense, turns
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import WIDTH, Keys
from zoo.hf._mamba2_hybrid import Mamba2Hybrid
from zoo.hf._pairs import Pair
from zoo.hf.granitemoeshared import GraniteMoeShared, shared_weights
from zoo.mixers.attention import Attention
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class GraniteMoeHybrid(Mamba2Hybrid, GraniteMoeShared):
    """Mamba-2 in most layers and attention, mostly without positions, in the others; experts and a shared one in every
    layer, or dense FFNs. Granite Team 2025, https://huggingface.co/ibm-granite/granite-4.0-h-small."""

    model_types: ClassVar[tuple[str, ...]] = ("granitemoehybrid",)
    ffn_keys: ClassVar[Keys] = {"shared_intermediate_size": WIDTH}

    def ffn(self, config: Config) -> SpecJson:
        if config["num_local_experts"] > 0:
            return GraniteMoeShared.ffn(self, config)
        return Mamba2Hybrid.ffn(self, config)

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {kind: edits for kind, edits in super().edits(config).items() if kind != "experts"}

    def position(self, config: Config) -> SpecJson:
        if config["position_embedding_type"] == "rope":
            return super().position(config)
        config.ignore("max_position_embeddings", "rope_parameters")
        return {"kind": "nope"}

    def config(self, spec: ModelSpec) -> ConfigJson:
        arguments = super().config(spec)
        if not any(isinstance(layer.ffn, MoE) for layer in spec.layers):
            arguments["num_local_experts"] = 0
        turned = any(isinstance(layer.mixer, Attention) and turns(layer) for layer in spec.layers)
        return {**arguments, "position_embedding_type": "rope" if turned else None}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return super().position_config(layer) if turns(layer) else {}

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.ffn, MoE):
            return self.expert_weights(layer.ffn, ours, theirs)
        return shared_weights(ours, theirs, dense(layer).width)
