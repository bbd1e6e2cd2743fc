"""Windows on some layers, and other positions there."""

from __future__ import annotations

from zoo.block_spec import BlockSpec
from zoo.hf._common import attention
from zoo.hf._config import Config, ConfigJson
from zoo.hf._layers import FULL, SLIDING, layer_types, window_config, windows
from zoo.hf._llama_like import LlamaLike
from zoo.hf._rope import layered_rope_config, rope
from zoo.hf._version import MAJOR
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class RopeByType(LlamaLike):
    """Llama's block with RoPE of each of `layer_types`."""

    def spec(self, config: Config) -> SpecJson:
        spec = {**super().spec(config), **windows(config)}
        if "window" in spec["blocks"]:
            spec["blocks"]["window"]["mixer.position"] = self.position_of(config, SLIDING)
        return spec

    def position(self, config: Config) -> SpecJson:
        return self.position_of(config, FULL)

    def position_of(self, config: Config, kind: str) -> SpecJson:
        """Position of the layers of a kind; of those of the other, where the config has only theirs."""
        given = config.get("rope_parameters") or {}
        known = kind if kind in given or MAJOR < 5 else next(iter(given), kind)
        return rope(config, self.head_dim(config), known, partial=self.partial_rotary)

    def config(self, spec: ModelSpec) -> ConfigJson:
        positions = dict(zip(layer_types(spec), (attention(layer).position for layer in spec.layers), strict=True))
        return {**super().config(spec), **window_config(spec), **layered_rope_config(positions)}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return {}
