"""Llama 3.1's scaling."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.errors import SpecError
from zoo.positions.scalings import Scaling, rotation
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests


class Llama3(Scaling):
    """θ'_i = (1 − s_i)·θ_i/factor + s_i·θ_i, s_i = clamp((L/λ_i − low)/(high − low), 0, 1), λ_i = 2π/θ_i.

    Pairs with more than `high_freq_factor` rotations within L = `original_length` tokens are unchanged, pairs with
    fewer than `low_freq_factor` are interpolated, pairs between are blended (none, if both factors are equal).
    Grattafiori et al. 2024, arXiv:2407.21783, and its published code.
    """

    examples: ClassVar[Examples] = ({"original_length": 8},)
    kind: Literal["llama3"] = "llama3"
    supports: ClassVar[Operations] = EVERY_OPERATION
    by_length: ClassVar[bool] = False
    factor: PositiveFloat = 8.0
    """Divisor of low frequencies."""
    low_freq_factor: PositiveFloat = 1.0
    """low: rotations within L tokens below which a pair's frequency is divided by the whole factor."""
    high_freq_factor: PositiveFloat = 4.0
    """high: rotations within L tokens above which a pair is unchanged; at least `low_freq_factor`."""
    original_length: Annotated[PositiveInt, MaxInTests(64)] = 8192
    """L: context of the original training, in tokens."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high_freq_factor < self.low_freq_factor:
            least, given = self.low_freq_factor, self.high_freq_factor
            raise SpecError("high_freq_factor", f"must be at least low_freq_factor = {least}, not {given}")
        return self

    def frequencies(self, base: float, dim: int, length: Tensor) -> Tensor:
        theta = rotation(base, dim, length.device)
        turns = self.original_length * theta / (2 * math.pi)
        width = self.high_freq_factor - self.low_freq_factor
        keep = (
            ((turns - self.low_freq_factor) / width).clamp(0, 1) if width else (turns >= self.low_freq_factor).float()
        )
        return (1 - keep) * theta / self.factor + keep * theta
