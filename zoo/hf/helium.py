"""Helium 1."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.hf._keys import QKV_BIAS, Keys
from zoo.hf.llama import Llama


class Helium(Llama):
    """Llama with interleaved RoPE, and heads that are as wide as the stream together. Kyutai 2025,
    https://kyutai.org/2025/04/30/helium.html."""

    model_types: ClassVar[tuple[str, ...]] = ("helium",)
    preference: ClassVar[int] = 1
    rope_layout: ClassVar[Literal["half", "interleaved"]] = "interleaved"
    mixer_keys: ClassVar[Keys] = {**Llama.mixer_keys, "attention_bias": QKV_BIAS}
