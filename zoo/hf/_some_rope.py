"""RoPE on some of the layers, and no positions on the others."""

from __future__ import annotations

from zoo.block_spec import BlockSpec
from zoo.hf._common import turns
from zoo.hf._config import ConfigJson
from zoo.hf._keyed import Keyed
from zoo.spec import ModelSpec


class SomeRoPE(Keyed):
    """Family whose config says once for all layers what the first of those with RoPE does."""

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return next((layer for layer in spec.layers if turns(layer)), spec.layers[0])

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return super().position_config(layer) if turns(layer) else {}
