"""Mellum 2."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config
from zoo.hf._keys import BIAS, Keys
from zoo.hf._layered import Layered, Listed
from zoo.hf._layers import SLIDING, types_of
from zoo.hf._qwen_experts import QwenExperts
from zoo.hf._rope_by_layer import RopeByType
from zoo.settings.edits import SpecJson


class Mellum(RopeByType, Listed, QwenExperts):
    """Qwen 3 with experts, windows on some layers, and other positions there. JetBrains 2026,
    https://huggingface.co/JetBrains/Mellum2-12B-A2.5B-Base."""

    model_types: ClassVar[tuple[str, ...]] = ("mellum",)
    qk_norm: ClassVar[SpecJson | None] = {}
    preference: ClassVar[int] = 3
    mixer_keys: ClassVar[Keys] = {**QwenExperts.mixer_keys, "attention_bias": BIAS}

    def spec(self, config: Config) -> SpecJson:
        # Modules that look ahead.
        config.ignore("num_mtp_layers", "num_nextn_predict_layers", "mtp_layer_types", "mtp_mlp_layer_types")
        return Layered.spec(self, config)

    def mixer_kinds(self, config: Config) -> list[list[str]]:
        return [[SLIDING] * (kind == SLIDING) for kind in types_of(config)]

    def edits(self, config: Config) -> dict[str, SpecJson]:
        near = {"mixer.window": config["sliding_window"], "mixer.position": self.position_of(config, SLIDING)}
        return {**super().edits(config), SLIDING: near}
