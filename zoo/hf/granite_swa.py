"""Granite Swash."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._granite_swa import SlidingGranite


class GraniteSwa(SlidingGranite):
    """Granite with sinks, windows on most layers, and RoPE or none by layer. Granite Team 2026,
    https://huggingface.co/ibm-granite/granite-swash-2b."""

    model_types: ClassVar[tuple[str, ...]] = ("granite_swa",)
    has_head_dim: ClassVar[bool] = False
