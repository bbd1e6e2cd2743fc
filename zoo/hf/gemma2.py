"""Gemma 2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._layers import window_config, windows
from zoo.hf._pairs import Pair, same
from zoo.hf.gemma import Gemma
from zoo.spec import ModelSpec


class Gemma2(Gemma):
    """Gemma with norms on both sides of a branch, capped scores and logits, and windows on some layers. Gemma Team
    2024, arXiv:2408.00118."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma2",)
    activation_key: ClassVar[str] = "hidden_activation"

    def spec(self, config: Config) -> SpecJson:
        config.ignore("sliding_window_size")  # transformers does not read it
        return {**super().spec(config), "final_softcap": config["final_logit_softcapping"], **windows(config)}

    def block(self, config: Config) -> SpecJson:
        return {**super().block(config), "norm_placement": "double"}

    def mixer(self, config: Config) -> SpecJson:
        scale = config["query_pre_attn_scalar"] ** -0.5
        return {**super().mixer(config), "scale": scale, "softcap": config["attn_logit_softcapping"]}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {
            **super().config(spec),
            "final_logit_softcapping": spec.final_softcap,
            **window_config(spec),
        }

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        mixer = attention(layer)
        # A whole number, as the config wants it: another scale is not found again, and so refused.
        scalar = max(1, round((mixer.scale or 1.0) ** -2))
        return {
            **super().block_config(layer),
            "query_pre_attn_scalar": scalar,
            "attn_logit_softcapping": mixer.softcap,
        }

    def norm_weights(self, ours: str, theirs: str) -> Iterator[Pair]:
        yield same(f"{ours}.mixer_residual.norm_in.gain", f"{theirs}.input_layernorm.weight")
        yield same(f"{ours}.mixer_residual.norm_out.gain", f"{theirs}.post_attention_layernorm.weight")
        yield same(f"{ours}.ffn_residual.norm_in.gain", f"{theirs}.pre_feedforward_layernorm.weight")
        yield same(f"{ours}.ffn_residual.norm_out.gain", f"{theirs}.post_feedforward_layernorm.weight")
