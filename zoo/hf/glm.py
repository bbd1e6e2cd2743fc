"""GLM-4 of 2024 (`glm`) and of 2025 (`glm4`), which adds norms on the branches' outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from zoo.block_spec import BlockSpec
from zoo.hf._common import dense, fused_gate_up
from zoo.hf._config import Config
from zoo.hf._keys import QKV_BIAS, Keys
from zoo.hf._llama_like import PRE, LlamaLike
from zoo.hf._pairs import Pair
from zoo.settings.edits import SpecJson

OUTPUT_NORMS = {
    "mixer_residual.norm_out": "post_self_attn_layernorm",
    "ffn_residual.norm_out": "post_mlp_layernorm",
}


class GLM(LlamaLike):
    """Llama with interleaved partial RoPE. GLM Team 2024, arXiv:2406.12793."""

    model_types: ClassVar[tuple[str, ...]] = ("glm", "glm4")
    partial_rotary: ClassVar[bool] = True
    rope_layout: ClassVar[Literal["half", "interleaved"]] = "interleaved"
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": QKV_BIAS}

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "norm_placement": "double" if config["model_type"] == "glm4" else "pre"}

    def norms(self, layer: BlockSpec) -> Mapping[str, str]:
        return PRE | OUTPUT_NORMS if layer.norm_placement.kind == "double" else PRE

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        return fused_gate_up(dense(layer), ours, theirs)
