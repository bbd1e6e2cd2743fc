"""Ministral 3."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._rope import rope
from zoo.hf.mistral import Mistral
from zoo.settings.edits import SpecJson

BETA, LENGTH = "llama_4_scaling_beta", "original_max_position_embeddings"


class Ministral3(Mistral):
    """Mistral whose queries grow with their place. Mistral AI 2026, arXiv:2601.08584."""

    model_types: ClassVar[tuple[str, ...]] = ("ministral3",)
    preference: ClassVar[int] = 3

    def mixer(self, config: Config) -> SpecJson:
        parameters = config["rope_parameters"]
        grown = {"coefficient": parameters[BETA], "floor": parameters[LENGTH], "offset": 0}
        return {**super().mixer(config), "temperature": grown if parameters[BETA] else None}

    def position(self, config: Config) -> SpecJson:
        kind = config["rope_parameters"].get("rope_type", "default")
        unread = (BETA, "max_position_embeddings", *([] if kind in ("yarn", "llama3", "longrope") else [LENGTH]))
        return rope(config, self.head_dim(config), unread=unread)

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        arguments, grown = super().position_config(layer), attention(layer).temperature
        own = {BETA: 0.0} if grown is None else {BETA: grown.coefficient, LENGTH: grown.floor}
        return {**arguments, "rope_parameters": {LENGTH: 1, **arguments["rope_parameters"], **own}}
