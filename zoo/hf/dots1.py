"""dots.llm1."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config, ConfigJson
from zoo.hf._fine_experts import FineExperts
from zoo.hf._keys import BIAS, Keys
from zoo.hf._layers import SLIDING, layer_types, types_of, window_of
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

WINDOW = "window"


class Dots1(FineExperts):
    """Qwen 3's attention, windows on some layers, DeepSeek-V3's experts after some dense layers. Huo et al. 2025,
    arXiv:2506.05767."""

    model_types: ClassVar[tuple[str, ...]] = ("dots1",)
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {**FineExperts.mixer_keys, "attention_bias": BIAS}
    scoring: ClassVar[tuple[str, ...]] = ("sigmoid", "noaux_tc")

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        config.ignore("max_window_layers")  # it only says what layer_types are by default
        return [[WINDOW] * (kind == SLIDING) for kind in types_of(config)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), WINDOW: {"mixer.window": config["sliding_window"]}}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), "layer_types": layer_types(spec), "sliding_window": window_of(spec)}
