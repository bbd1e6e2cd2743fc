"""Rotation of the highest-frequency pairs only."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.positions.scalings import Scaling, rotation


class Proportional(Scaling):
    """θ'_i = θ_i / factor for the first ⌊proportion·d/2⌋ pairs, 0 for the others, which then carry no position.

    Unlike with a `fraction` of the head, θ and the pairing of features are those of the whole head. Gemma 4 (2026), as
    in transformers.
    """

    kind: Literal["proportional"] = "proportional"
    supports: ClassVar[Operations] = EVERY_OPERATION
    by_length: ClassVar[bool] = False
    proportion: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the pairs, the first ones, that are rotated."""
    factor: PositiveFloat = 1.0
    """Divisor of the rotated pairs' frequencies."""

    def frequencies(self, base: float, dim: int, length: Tensor) -> Tensor:
        whole = rotation(base, dim, length.device)
        turning = torch.arange(len(whole), device=length.device) < int(self.proportion * dim // 2)
        return torch.where(turning, whole / self.factor, 0.0)
