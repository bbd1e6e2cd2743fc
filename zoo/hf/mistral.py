"""Mistral: Llama with a window on every layer."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._llama_like import LlamaLike


class Mistral(LlamaLike):
    """Jiang et al. 2023, arXiv:2310.06825."""

    model_types: ClassVar[tuple[str, ...]] = ("mistral",)

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "window": config["sliding_window"]}

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        return {**super().block_config(layer), "sliding_window": attention(layer).window}
