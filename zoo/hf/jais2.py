"""Jais 2."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._keys import BIAS, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.settings.edits import SpecJson


class Jais2(LlamaLike):
    """Llama with LayerNorm, biases, and an FFN of squared ReLU. Inception 2025,
    https://huggingface.co/inceptionai/Jais-2-8B-Chat."""

    model_types: ClassVar[tuple[str, ...]] = ("jais2",)
    preference: ClassVar[int] = 2
    norm_keys: ClassVar[Keys] = {"layer_norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm"}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {**LlamaLike.ffn_keys, "mlp_bias": "bias"}
