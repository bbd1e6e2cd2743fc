"""Windows on some layers of a plain block: Code World Model and Ministral 8B."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config, ConfigJson
from zoo.hf._layers import window_config, windows
from zoo.hf._llama_like import LlamaLike
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Windowed(LlamaLike):
    """Llama without biases, with windows on some layers. FAIR 2025 (CWM), arXiv:2510.02387."""

    model_types: ClassVar[tuple[str, ...]] = ("cwm", "ministral")
    preference: ClassVar[int] = 2

    def spec(self, config: Config) -> SpecJson:
        config.ignore("mlp_bias", "attention_bias")
        return {**super().spec(config), **windows(config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        return {**super().config(spec), **window_config(spec)}
