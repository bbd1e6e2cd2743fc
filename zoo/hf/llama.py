"""Llama, Llama 2, Llama 3 and all that share their config: Yi, DeepSeek LLM, SmolLM2."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._config import Config
from zoo.hf._keys import BIAS, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.settings.edits import SpecJson


class Llama(LlamaLike):
    """Touvron et al. 2023, arXiv:2302.13971."""

    model_types: ClassVar[tuple[str, ...]] = ("llama",)
    preference: ClassVar[int] = 0
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    ffn_keys: ClassVar[Keys] = {**LlamaLike.ffn_keys, "mlp_bias": "bias"}

    def spec(self, config: Config) -> SpecJson:
        # transformers does not read them.
        config.ignore("is_llama_config", "max_sequence_length", "transformers.js_config")
        return super().spec(config)
