"""Base of most families: Llama's block, with some of its parts exchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.ffns._moe import MoE
from zoo.hf._common import attention, attention_weights, dense, dense_weights, norm_weights, outside
from zoo.hf._config import Config, ConfigJson
from zoo.hf._experts import gated_experts
from zoo.hf._keyed import Keyed
from zoo.hf._pairs import Pair, same
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

PRE = {"mixer_residual.norm_in": "input_layernorm", "ffn_residual.norm_in": "post_attention_layernorm"}
OUTPUT = {
    "mixer_residual.norm_out": "post_attention_layernorm",
    "ffn_residual.norm_out": "post_feedforward_layernorm",
}
DOUBLE = {
    "mixer_residual.norm_in": "input_layernorm",
    "ffn_residual.norm_in": "pre_feedforward_layernorm",
    **OUTPUT,
}
"""Names of a layer's norms by ours: Llama's, OLMo 2's behind the branches, and Gemma 2's on both sides of them."""


class LlamaLike(Keyed):
    """x + attention(norm(x)), x + gated(norm(x)), with RMSNorm and RoPE. Families say what differs."""

    has_head_dim: ClassVar[bool] = True
    """Whether a config says how wide a head is."""
    norm_names: ClassVar[Mapping[str, str]] = PRE
    final_norm_name: ClassVar[str] = "model.norm"

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "head_dim": self.head_dim(config)}

    def head_dim(self, config: Config) -> int:
        return int(config.get("head_dim") or super().head_dim(config))

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        arguments = super().block_config(layer)
        return {**arguments, "head_dim": attention(layer).head_dim} if self.has_head_dim else arguments

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from norm_weights(spec.block.norm, "norm", self.final_norm_name)
        yield from outside(spec)
        for i, layer in enumerate(spec.layers):
            ours, theirs = f"blocks.{i}", f"model.layers.{i}"
            for own, name in self.norms(layer).items():
                yield from norm_weights(layer.norm, f"{ours}.{own}", f"{theirs}.{name}")
            yield from self.mixer_weights(layer, f"{ours}.mixer", f"{theirs}.self_attn")
            yield from self.ffn_weights(layer, f"{ours}.ffn", f"{theirs}.mlp")

    def norms(self, layer: BlockSpec) -> Mapping[str, str]:
        """Names of this layer's norms by ours."""
        return self.norm_names

    def mixer_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        return attention_weights(attention(layer), ours, theirs)

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        if isinstance(layer.ffn, self.experts_class):
            return self.expert_weights(layer.ffn, ours, theirs)
        return dense_weights(dense(layer), ours, theirs)

    def expert_weights(self, moe: MoE, ours: str, theirs: str) -> Iterator[Pair]:
        """Router and experts, without shared ones."""
        yield same(f"{ours}.router.weight", f"{theirs}.gate.weight")
        yield from gated_experts(f"{ours}.experts", f"{theirs}.experts", moe.width, moe.experts)
