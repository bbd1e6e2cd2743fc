"""Nemotron-4 and Minitron."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._keys import BIAS, Keys
from zoo.hf._llama_like import LlamaLike
from zoo.settings.edits import SpecJson


class Nemotron(LlamaLike):
    """Llama with LayerNorm whose gains are stored less one, partial RoPE and squared ReLU. Parmar et al. 2024,
    arXiv:2402.16819."""

    model_types: ClassVar[tuple[str, ...]] = ("nemotron",)
    partial_rotary: ClassVar[bool] = True
    norm_keys: ClassVar[Keys] = {"norm_eps": "eps"}
    norm_fixed: ClassVar[SpecJson] = {"kind": "layernorm", "unit_offset": True}
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "attention_bias": BIAS}
    gated: ClassVar[bool] = False
    ffn_keys: ClassVar[Keys] = {**LlamaLike.ffn_keys, "mlp_bias": "bias"}
