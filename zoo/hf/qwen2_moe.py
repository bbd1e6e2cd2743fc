"""Qwen 1.5 and Qwen 2 with experts."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config, ConfigJson
from zoo.hf._keys import QKV_BIAS, Keys
from zoo.hf._layers import SLIDING, layer_types, sliding_types, window_of
from zoo.hf._qwen_experts import QwenSharedExperts
from zoo.settings.edits import SpecJson
from zoo.spec import ModelSpec

WINDOW = "window"


class Qwen2Moe(QwenSharedExperts):
    """Qwen 2 with experts and a shared one behind a gate. Yang et al. 2024, arXiv:2407.10671."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen2_moe",)
    mixer_keys: ClassVar[Keys] = {**QwenSharedExperts.mixer_keys, "qkv_bias": QKV_BIAS}

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        config.ignore("use_sliding_window", "max_window_layers")  # they only say what layer_types are by default
        return [[WINDOW] * (kind == SLIDING) for kind in sliding_types(config)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        return {**super().edits(config), WINDOW: {"mixer.window": config["sliding_window"]}}

    def config(self, spec: ModelSpec) -> ConfigJson:
        window = window_of(spec)
        types = {"layer_types": layer_types(spec), "use_sliding_window": window is not None, "sliding_window": window}
        return {**super().config(spec), **types}
