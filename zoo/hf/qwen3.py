"""Qwen 3."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._keys import BIAS, Keys
from zoo.hf.qwen2 import Qwen2
from zoo.settings.edits import SpecJson


class Qwen3(Qwen2):
    """Qwen 2 with a norm of each head's queries and keys, and other biases. Yang et al. 2025, arXiv:2505.09388."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen3",)
    qk_norm: ClassVar[SpecJson | None] = {}
    mixer_keys: ClassVar[Keys] = {**Qwen2.mixer_keys, "attention_bias": BIAS}
