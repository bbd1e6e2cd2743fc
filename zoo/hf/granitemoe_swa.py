"""Granite Swash with experts."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._granite_swa import SlidingGranite
from zoo.hf.granitemoeshared import GraniteMoeShared


class GraniteMoeSwa(SlidingGranite, GraniteMoeShared):
    """Granite with experts, sinks, windows on most layers, and RoPE or none by layer. Granite Team 2026,
    https://huggingface.co/ibm-granite/granite-swash-3b-a600m."""

    model_types: ClassVar[tuple[str, ...]] = ("granitemoe_swa",)
