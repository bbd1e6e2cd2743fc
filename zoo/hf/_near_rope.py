"""RoPE where there is a window, and no positions where there is none."""

from __future__ import annotations

from zoo.block_spec import BlockSpec
from zoo.edits import SpecJson
from zoo.errors import UnsupportedError
from zoo.hf._common import attention, turns
from zoo.hf._config import Config, ConfigJson
from zoo.hf._layered import Layered
from zoo.hf._layers import FULL, SLIDING, types_of, window_config
from zoo.spec import ModelSpec


class NearRoPE(Layered):
    """Llama's block with windows on some of the layers, whose full attention is without positions."""

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        types = types_of(config)
        if SLIDING in types and config["sliding_window"] is None:
            raise UnsupportedError("sliding_window", "layers with sliding attention need one")
        return [[FULL] * (kind == FULL) for kind in types]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), FULL: {"mixer.position": "nope", "mixer.window": None}}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "window": config["sliding_window"]}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), **window_config(spec)}

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return next((layer for layer in spec.layers if attention(layer).window is not None), spec.layers[0])

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return super().position_config(layer) if turns(layer) else {}
