"""GLM-4 of 2024 (`glm`) and of 2025 (`glm4`), which adds norms on the branches' outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention, dense
from zoo.hf._config import Config, ConfigJson
from zoo.hf._gpt import QKV
from zoo.hf._llama_like import LlamaLike
from zoo.hf._pairs import Pair, fused, same
from zoo.spec import ModelSpec

OUTPUT_NORMS = {
    "mixer_residual.norm_out": "post_self_attn_layernorm",
    "ffn_residual.norm_out": "post_mlp_layernorm",
}


class GLM(LlamaLike):
    """Llama with interleaved partial RoPE. GLM Team 2024, arXiv:2406.12793."""

    model_types: ClassVar[tuple[str, ...]] = ("glm", "glm4")
    partial_rotary: ClassVar[bool] = True

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "norm_placement": "double" if config["model_type"] == "glm4" else "pre"}

    def mixer(self, config: Config) -> SpecJson:
        mixer = {**super().mixer(config), "bias": list(QKV) if config["attention_bias"] else False}
        mixer["position"] = {**mixer["position"], "layout": "interleaved"}
        return mixer

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "attention_bias": bool(attention(layer).bias)}

    def weights(self, spec: ModelSpec) -> Iterator[Pair]:
        yield from super().weights(spec)
        for i, layer in enumerate(spec.layers):
            for ours, theirs in OUTPUT_NORMS.items() if layer.norm_placement.kind == "double" else ():
                yield same(f"blocks.{i}.{ours}.gain", f"model.layers.{i}.{theirs}.weight")

    def ffn_weights(self, layer: BlockSpec, ours: str, theirs: str) -> Iterator[Pair]:
        sizes = [dense(layer).width] * 2
        yield fused([f"{ours}.gate.weight", f"{ours}.up.weight"], f"{theirs}.gate_up_proj.weight", sizes)
        yield same(f"{ours}.down.weight", f"{theirs}.down_proj.weight")
