"""Gemma 3, the language model without images."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._layers import FULL, SLIDING, layer_types
from zoo.hf._rope import layered_rope_config, rope
from zoo.hf.gemma2 import Gemma2
from zoo.spec import ModelSpec


class Gemma3(Gemma2):
    """Gemma 2 with a norm of each head's queries and keys instead of a cap, and other positions where there is a
    window. Gemma Team 2025, arXiv:2503.19786."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma3_text",)

    def spec(self, config: Config) -> SpecJson:
        # They only say what layer_types are by default.
        config.ignore("_sliding_window_pattern", "sliding_window_pattern")
        spec = super().spec(config)
        if "window" in spec["blocks"]:
            spec["blocks"]["window"]["mixer.position"] = rope(config, self.head_dim(config), SLIDING)
        return spec

    def mixer(self, config: Config) -> SpecJson:
        # transformers reads attn_logit_softcapping, and does not use it.
        return {**super().mixer(config), "qk_norm": self.norm(config), "softcap": None}

    def position(self, config: Config) -> SpecJson:
        return rope(config, self.head_dim(config), FULL)

    def config(self, spec: ModelSpec) -> ConfigJson:
        positions = dict(zip(layer_types(spec), (attention(layer).position for layer in spec.layers), strict=True))
        return {**super().config(spec), **layered_rope_config(positions)}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "attn_logit_softcapping": None}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return {}
