"""Granite 3."""

from __future__ import annotations

from typing import Any, ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention, reciprocal
from zoo.hf._config import Config
from zoo.hf.llama import Llama
from zoo.spec import ModelSpec


class Granite(Llama):
    """Llama with multipliers of embeddings, scores, branches and logits. Granite Team 2024,
    https://github.com/ibm-granite/granite-3.0-language-models."""

    model_types: ClassVar[tuple[str, ...]] = ("granite",)
    preference: ClassVar[int] = 1

    def spec(self, config: Config) -> dict[str, Any]:
        return {
            **super().spec(config),
            "embedding_scale": float(config["embedding_multiplier"]),
            "logit_scale": 1 / config["logits_scaling"],
        }

    def block(self, config: Config) -> dict[str, Any]:
        placement = {"kind": "pre", "branch_scale": float(config["residual_multiplier"])}
        return {**super().block(config), "norm_placement": placement}

    def mixer(self, config: Config) -> dict[str, Any]:
        return {**super().mixer(config), "scale": float(config["attention_multiplier"])}

    def config(self, spec: ModelSpec) -> dict[str, Any]:
        return {
            **super().config(spec),
            "embedding_multiplier": spec.embedding_factor,
            "logits_scaling": reciprocal(spec.logit_scale),
        }

    def block_config(self, layer: BlockSpec) -> dict[str, Any]:
        return {
            **super().block_config(layer),
            "residual_multiplier": layer.norm_placement.branch_scale,
            "attention_multiplier": attention(layer).scale,
        }
