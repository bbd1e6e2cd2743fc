"""OLMo."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._keys import BIAS, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.settings.edits import SpecJson


class Olmo(LlamaLike):
    """Llama with norms that have no parameters, and clipped queries, keys and values. Groeneveld et al. 2024,
    arXiv:2402.00838."""

    model_types: ClassVar[tuple[str, ...]] = ("olmo",)
    norm_keys: ClassVar[Keys] = {}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm", "eps": 1e-5, "gain": False, "bias": False}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS, "clip_qkv": "clip_qkv"}
