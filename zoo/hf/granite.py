"""Granite 3."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import reciprocal
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import Key, Keys
from zoo.hf.llama import Llama
from zoo.settings.edits import SpecJson


class Granite(Llama):
    """Llama with multipliers of embeddings, scores, branches and logits. Granite Team 2024,
    https://github.com/ibm-granite/granite-3.0-language-models."""

    model_types: ClassVar[tuple[str, ...]] = ("granite",)
    preference: ClassVar[int] = 1
    model_keys: ClassVar[Keys] = {
        **Llama.model_keys,
        "embedding_multiplier": Key("embedding_scale", float, resolved="embedding_factor"),
        "logits_scaling": Key("logit_scale", lambda scaling: 1 / scaling, reciprocal),
    }
    mixer_keys: ClassVar[Keys] = {**Llama.mixer_keys, "attention_multiplier": Key("scale", float)}

    def block(self, config: Config) -> SpecJson:
        placement = {"kind": "pre", "branch_scale": float(config["residual_multiplier"])}
        return {**super().block(config), "norm_placement": placement}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "residual_multiplier": layer.norm_placement.branch_scale}
