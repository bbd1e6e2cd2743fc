"""Positions that differ from layer to layer."""

from __future__ import annotations

from zoo.block_spec import BlockSpec
from zoo.hf._config import MAJOR, Config, ConfigJson
from zoo.hf._keyed import Keyed, LlamaLike
from zoo.hf._layered import Layered
from zoo.hf._layers import FULL, SLIDING, attention, layer_types, sliding_types, turns, types_of, window_config, windows
from zoo.hf._rope import layered_rope_config, rope
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class SomeRoPE(Keyed):
    """Family with RoPE on some layers only, whose config has the settings of the first of these for all layers."""

    def typical(self, spec: ModelSpec) -> BlockSpec:
        return next((layer for layer in spec.layers if turns(layer)), spec.layers[0])

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return super().position_config(layer) if turns(layer) else {}


class NearRoPE(SomeRoPE, Layered):
    """Llama's block with windows and RoPE on some layers, and full attention without positions on the others."""

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        return [[FULL] * (kind == FULL) for kind in sliding_types(config)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), FULL: {"mixer.position": "nope", "mixer.window": None}}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "window": config["sliding_window"]}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), **window_config(spec)}


class SomeWindows(LlamaLike):
    """Llama's block with windows on some layers."""

    def spec(self, config: Config) -> SpecJson:
        return {**super().spec(config), **windows(config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), **window_config(spec)}


class RopeByType(SomeWindows):
    """`SomeWindows` with separate RoPE settings for each of `layer_types`."""

    def spec(self, config: Config) -> SpecJson:
        spec = super().spec(config)
        if "window" in spec["blocks"]:
            spec["blocks"]["window"]["mixer.position"] = self.position_of(config, SLIDING)
        return spec

    def position(self, config: Config) -> SpecJson:
        return self.position_of(config, FULL)

    def position_of(self, config: Config, kind: str) -> SpecJson:
        """Position scheme of the layers of a type, or of the other type if the config has only that."""
        given = config.get("rope_parameters") or {}
        known = kind if kind in given or MAJOR < 5 else next(iter(given), kind)
        return rope(config, self.head_dim(config), known, partial=self.partial_rotary)

    def config(self, spec: ModelSpec) -> ConfigJson:
        positions = dict(zip(layer_types(spec), (attention(layer).position for layer in spec.layers), strict=True))
        return {**super().config(spec), **layered_rope_config(positions)}

    def position_config(self, layer: BlockSpec) -> ConfigJson:
        return {}


class NearByType(RopeByType, Layered):
    """`RopeByType` with windows as one edit of layers among others."""

    def spec(self, config: Config) -> SpecJson:
        return Layered.spec(self, config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        return [[SLIDING] * (kind == SLIDING) for kind in types_of(config)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        near = {"mixer.window": config["sliding_window"], "mixer.position": self.position_of(config, SLIDING)}
        return {**super().edits(config), SLIDING: near}
