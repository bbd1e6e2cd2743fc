"""ERNIE 4.5."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.hf._config import Config
from zoo.hf._keys import BIAS, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.settings.edits import SpecJson


class Ernie(LlamaLike):
    """Llama with interleaved RoPE and one setting for all biases. Baidu 2025,
    https://ernie.baidu.com/blog/publication/ERNIE_Technical_Report.pdf."""

    model_types: ClassVar[tuple[str, ...]] = ("ernie4_5",)
    rope_layout: ClassVar[Literal["half", "interleaved"]] = "interleaved"
    mixer_keys: ClassVar[Keys] = {
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "use_bias": BIAS,
    }
    ffn_keys: ClassVar[Keys] = {**LlamaLike.ffn_keys, "use_bias": "bias"}

    def mixer(self, config: Config) -> SpecJson:
        config.ignore("attention_dropout", "compression_ratio")  # transformers does not read them
        return super().mixer(config)
