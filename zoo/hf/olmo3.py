"""Olmo 3."""

from __future__ import annotations

from typing import ClassVar

from zoo.hf._rope_by_type import RopeByType
from zoo.hf.olmo2 import Olmo2


class Olmo3(RopeByType, Olmo2):
    """OLMo 2 with windows on some layers, and other positions there. Team Olmo 2025, arXiv:2512.13961."""

    model_types: ClassVar[tuple[str, ...]] = ("olmo3",)
