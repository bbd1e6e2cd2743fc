"""Qwen 2 and 2.5."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import QKV
from zoo.hf._layers import layer_types, window_of, windows
from zoo.hf._llama_like import LlamaLike
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec


class Qwen2(LlamaLike):
    """Llama with biases on queries, keys and values, and windows on some layers. Yang et al. 2024, arXiv:2407.10671."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen2",)
    mixer_fixed: ClassVar[SpecJson] = {"kind": "attention", "bias": list(QKV)}

    def spec(self, config: Config) -> SpecJson:
        config.ignore("use_sliding_window", "max_window_layers")  # they only say what layer_types are by default
        return {**super().spec(config), **windows(config)}

    def config(self, spec: ModelSpec) -> ConfigJson:
        window = window_of(spec)
        types = {"layer_types": layer_types(spec), "use_sliding_window": window is not None, "sliding_window": window}
        return {**super().config(spec), **types}
