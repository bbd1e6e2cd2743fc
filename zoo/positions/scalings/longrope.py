"""LongRoPE."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from zoo.compatibility.traits import EVERY_OPERATION, OF_MODULES, OF_VALUES, Operations
from zoo.errors import SpecError
from zoo.kernels.compiling import on_device
from zoo.positions.scalings import Scaling, rotation
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests, Supports

Factors = Annotated[tuple[PositiveFloat, ...], Field(strict=False)]


class LongRoPE(Scaling):
    """θ'_i = θ_i / short_factor_i for a text of up to L tokens, θ_i / long_factor_i beyond. Ding et al. 2024,
    arXiv:2402.13753; as in Phi-3, arXiv:2404.14219.

    L is `original_length`; `factor` = new length / L. Cached keys keep the rotation with which they were written, so
    cached decoding across L tokens differs from the uncached forward pass; each matches transformers.
    """

    # Longer than any tested text: past it, cached decoding differs from the uncached forward pass.
    examples: ClassVar[Examples] = (
        {
            "factor": 4.0,
            "original_length": 32,
            "short_factor": [1.0, 1.5, 3.0],
            "long_factor": [1.0, 4.0, 9.0],
        },
    )
    kind: Literal["longrope"] = "longrope"
    supports: ClassVar[Operations] = OF_MODULES | OF_VALUES
    short_factor: Factors
    """Divisors of θ for texts of up to L tokens, one for each pair of features."""
    long_factor: Factors
    """Divisors of θ for longer texts, one for each pair of features."""
    original_length: Annotated[PositiveInt, MaxInTests(64)]
    """L: context of the original training, in tokens."""
    factor: PositiveFloat
    """New length / L. It determines the factor on queries and keys unless `attention_factor` is set."""
    attention_factor: Annotated[PositiveFloat | None, Supports(*EVERY_OPERATION)] = None
    """Factor on rotated queries and keys; null for √(1 + ln factor / ln L), or 1 if factor ≤ 1."""

    @property
    def magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.factor <= 1:
            return 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_length))

    def check(self, dim: int, base: float) -> None:
        for name in ("short_factor", "long_factor"):
            count = len(getattr(self, name))
            if count != (dim + 1) // 2:
                raise SpecError(name, f"needs {(dim + 1) // 2} factors, one per pair of features, not {count}")

    def frequencies(self, base: float, dim: int, length: Tensor) -> Tensor:
        short, long = (on_device(f, length.device) for f in (self.short_factor, self.long_factor))
        return rotation(base, dim, length.device) / torch.where(length > self.original_length, long, short)
