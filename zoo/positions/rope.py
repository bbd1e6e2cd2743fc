"""Rotary position embedding."""

from __future__ import annotations

from typing import ClassVar, Literal

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.positions import PositionLayer
from zoo.positions._rotary import Rotary, RotaryLayer


class RoPE(Rotary):
    """Pair i of a query or key at position m is rotated by m·θ_i, θ_i = base^(−2i/d). Su et al. 2021, arXiv:2104.09864.

    `layout`: pair i is `half` (i, i + d/2), as in Llama, or `interleaved` (2i, 2i + 1), as in RoFormer and GPT-J. A
    `fraction` of the head's features, the first ones, is rotated. `scaling` changes θ.
    """

    kind: Literal["rope"] = "rope"
    supports: ClassVar[Operations] = EVERY_OPERATION

    def build(self, head_dim: int, heads: int) -> PositionLayer:
        return RotaryLayer(self, head_dim)
