"""No position encoding."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.positions import Position, PositionLayer


class NoPE(Position):
    """Queries and keys are unchanged; only the causal mask conveys order.

    Kazemnejad et al. 2023, arXiv:2305.19466.
    """

    kind: Literal["nope"] = "nope"
    supports: ClassVar[Operations] = EVERY_OPERATION

    def build(self, head_dim: int, heads: int) -> PositionLayer:
        return PositionLayer()
