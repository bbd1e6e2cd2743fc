"""Position interpolation."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat
from torch import Tensor

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.positions.scalings import Scaling, rotation
from zoo.settings.axis import Examples


class Linear(Scaling):
    """θ'_i = θ_i / factor: position interpolation. Chen et al. 2023, arXiv:2306.15595."""

    examples: ClassVar[Examples] = ({"factor": 4.0},)
    kind: Literal["linear"] = "linear"
    supports: ClassVar[Operations] = EVERY_OPERATION
    by_length: ClassVar[bool] = False
    factor: PositiveFloat
    """Divisor of positions: new length / original length."""

    def frequencies(self, base: float, dim: int, length: Tensor) -> Tensor:
        return rotation(base, dim, length.device) / self.factor
