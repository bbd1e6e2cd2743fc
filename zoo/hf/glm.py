"""GLM-4 to GLM-4.7, and Solar Open, which has the experts of GLM-4.5."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from zoo.block_spec import BlockSpec
from zoo.hf._config import QKV_BIAS, Config, Keys
from zoo.hf._family import Pair
from zoo.hf._keyed import PRE, LlamaLike
from zoo.hf._layered import ExpertsEverywhere, FineExperts
from zoo.hf._layers import dense, fused_gate_up
from zoo.settings.edits import SpecJson

OUTPUT_NORMS = {
    "mixer_residual.norm_out": "post_self_attn_layernorm",
    "ffn_residual.norm_out": "post_mlp_layernorm",
}


class GLM(LlamaLike):
    """Llama with interleaved partial RoPE: GLM-4 of 2024 (`glm`) and of 2025 (`glm4`), which adds norms on branch
    outputs. GLM Team 2024, arXiv:2406.12793."""

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


class Glm4Moe(FineExperts):
    """GLM-4.5, GLM-4.6 and GLM-4.7: attention with partial RoPE, DeepSeek-V3's experts after some dense layers. GLM
    Team 2025, arXiv:2508.06471."""

    model_types: ClassVar[tuple[str, ...]] = ("glm4_moe",)
    partial_rotary: ClassVar[bool] = True
    mixer_keys: ClassVar[Keys] = {**FineExperts.mixer_keys, "attention_bias": QKV_BIAS}
    qk_norm: ClassVar[SpecJson | None] = {}
    qk_norm_key: ClassVar[str | None] = "use_qk_norm"


class SolarOpen(ExpertsEverywhere, FineExperts):
    """Solar Open: Llama's attention, DeepSeek-V3's experts in every layer. Upstage 2026,
    https://huggingface.co/upstage/Solar-Open-100B."""

    model_types: ClassVar[tuple[str, ...]] = ("solar_open",)
    # Keys of published configs that nothing reads.
    ignored: ClassVar[tuple[str, ...]] = ("intermediate_size", "first_k_dense_replace")
    mixer_keys: ClassVar[Keys] = {**FineExperts.mixer_keys, "attention_bias": QKV_BIAS}

    def ffn(self, config: Config) -> SpecJson:
        return self.experts(config)
