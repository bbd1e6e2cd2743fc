"""Gemma."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config
from zoo.hf._keys import BIAS, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.settings.edits import SpecJson


class Gemma(LlamaLike):
    """Llama with gains of 1 + w and embeddings times √D. Gemma Team 2024, arXiv:2403.08295."""

    model_types: ClassVar[tuple[str, ...]] = ("gemma",)
    model_fixed: ClassVar[SpecJson] = {"embedding_scale": "sqrt_d_model"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "rmsnorm", "unit_offset": True}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}

    def spec(self, config: Config) -> SpecJson:
        # Each generation reads one of two names; published configs have both.
        config.ignore("hidden_act", "hidden_activation")
        config.only("use_bidirectional_attention", None, False)
        return super().spec(config)
