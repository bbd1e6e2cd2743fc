"""Norms on both sides of the branch."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.residuals._plain import Placed


class Double(Placed):
    """y = x + norm₂(f(norm₁(x))). Gemma 2 (2024), arXiv:2408.00118; Grok-1; Ding et al. 2021, arXiv:2105.13290."""

    kind: Literal["double"] = "double"
    supports: ClassVar[Operations] = EVERY_OPERATION
    places: ClassVar[frozenset[str]] = frozenset({"norm_in", "norm_out"})
