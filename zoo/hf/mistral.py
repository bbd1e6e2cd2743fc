"""Mistral: Llama with a window on every layer."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._keys import Keys
from zoo.hf._llama_like import LlamaLike


class Mistral(LlamaLike):
    """Jiang et al. 2023, arXiv:2310.06825."""

    model_types: ClassVar[tuple[str, ...]] = ("mistral",)
    mixer_keys: ClassVar[Keys] = {**LlamaLike.mixer_keys, "sliding_window": "window"}
