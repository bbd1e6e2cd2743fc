"""Base of most families: Llama's block, with some of its parts exchanged."""

from __future__ import annotations

from typing import ClassVar

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._keyed import Keyed
from zoo.settings.edits import SpecJson


class LlamaLike(Keyed):
    """x + attention(norm(x)), x + gated(norm(x)), with RMSNorm and RoPE. Families say what differs."""

    has_head_dim: ClassVar[bool] = True
    """Whether a config says how wide a head is."""

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "head_dim": self.head_dim(config)}

    def head_dim(self, config: Config) -> int:
        return int(config.get("head_dim") or super().head_dim(config))

    def block_config(self, layer: BlockSpec) -> ConfigJson:
        arguments = super().block_config(layer)
        return {**arguments, "head_dim": attention(layer).head_dim} if self.has_head_dim else arguments
