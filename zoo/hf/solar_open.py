"""Solar Open."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config
from zoo.hf._fine_experts import FineExperts
from zoo.hf._keys import QKV_BIAS, Keys
from zoo.hf._layered import ExpertsEverywhere
from zoo.settings.edits import SpecJson


class SolarOpen(ExpertsEverywhere, FineExperts):
    """Llama's attention, DeepSeek-V3's experts in every layer. Upstage 2026,
    https://huggingface.co/upstage/Solar-Open-100B."""

    model_types: ClassVar[tuple[str, ...]] = ("solar_open",)
    mixer_keys: ClassVar[Keys] = {**FineExperts.mixer_keys, "attention_bias": QKV_BIAS}

    def spec(self, config: Config) -> SpecJson:
        config.ignore("intermediate_size", "first_k_dense_replace")  # keys of published configs that nothing reads
        return super().spec(config)

    def ffn(self, config: Config) -> SpecJson:
        return self.experts(config)
