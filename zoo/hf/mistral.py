"""Mistral: Llama with a window on every layer."""

from __future__ import annotations

from typing import Any, ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._config import Config
from zoo.hf._llama_like import LlamaLike


class Mistral(LlamaLike):
    """Jiang et al. 2023, arXiv:2310.06825."""

    model_types: ClassVar[tuple[str, ...]] = ("mistral",)

    def mixer(self, config: Config) -> dict[str, Any]:
        return {**super().mixer(config), "window": config["sliding_window"]}

    def block_config(self, layer: BlockSpec) -> dict[str, Any]:
        return {**super().block_config(layer), "sliding_window": attention(layer).window}
