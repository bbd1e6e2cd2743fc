"""RoPE where there is a window, and no positions where there is none."""

from __future__ import annotations

from zoo.hf._config import Config, ConfigJson
from zoo.hf._layered import Layered
from zoo.hf._layers import FULL, sliding_types, window_config
from zoo.hf._some_rope import SomeRoPE
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class NearRoPE(SomeRoPE, Layered):
    """Llama's block with windows on some of the layers, whose full attention is without positions."""

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        return [[FULL] * (kind == FULL) for kind in sliding_types(config)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), FULL: {"mixer.position": "nope", "mixer.window": None}}

    def mixer(self, config: Config) -> SpecJson:
        return {**super().mixer(config), "window": config["sliding_window"]}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), **window_config(spec)}
