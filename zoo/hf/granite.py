"""Granite 3."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention, reciprocal
from zoo.hf._config import Config, ConfigJson
from zoo.hf.llama import Llama
from zoo.spec import ModelSpec


class Granite(Llama):
    """Llama with multipliers of embeddings, scores, branches and logits. Granite Team 2024,
    https://github.com/ibm-granite/granite-3.0-language-models."""

    model_types: ClassVar[tuple[str, ...]] = ("granite",)
    preference: ClassVar[int] = 1

    def spec(self, config: Config) -> SpecJson:
        return {
            **super().spec(config),
            "embedding_scale": float(config["embedding_multiplier"]),
            "logit_scale": 1 / config["logits_scaling"],
        }

    def block(self, config: Config) -> SpecJson:
        placement = {"kind": "pre", "branch_scale": float(config["residual_multiplier"])}
        return {**super().block(config), "norm_placement": placement}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "scale": float(config["attention_multiplier"])}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {
            **super().config(spec),
            "embedding_multiplier": spec.embedding_factor,
            "logits_scaling": reciprocal(spec.logit_scale),
        }

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {
            **super().block_config(layer),
            "residual_multiplier": layer.norm_placement.branch_scale,
            "attention_multiplier": attention(layer).scale,
        }
