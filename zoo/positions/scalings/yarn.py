"""YaRN."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.errors import SpecError
from zoo.positions.scalings import Scaling, rotation
from zoo.settings.axis import Examples
from zoo.settings.field_tags import MaxInTests, Supports


def attention_temperature(factor: float, mscale: float = 1.0) -> float:
    """0.1 · mscale · ln(factor) + 1, or 1 if factor < 1."""
    return 1 + 0.1 * mscale * math.log(max(factor, 1.0))


class YaRN(Scaling):
    """θ'_i = (1 − r_i)·θ_i + r_i·θ_i/factor, r_i = clamp((i − low)/(high − low), 0, 1). Peng et al. 2023,
    arXiv:2309.00071.

    low and high are the indices of the pairs with `beta_fast` and `beta_slow` rotations within L = `original_length`
    tokens, d·ln(L/(2π·β)) / (2·ln base), rounded outwards if `truncate`.
    """

    examples: ClassVar[Examples] = ({"factor": 4.0, "original_length": 8, "truncate": False},)
    kind: Literal["yarn"] = "yarn"
    supports: ClassVar[Operations] = EVERY_OPERATION
    by_length: ClassVar[bool] = False
    factor: PositiveFloat
    """Divisor of low frequencies: new length / L."""
    original_length: Annotated[PositiveInt, MaxInTests(64)]
    """L: context of the original training, in tokens."""
    beta_fast: PositiveFloat = 32.0
    """Rotations within L tokens above which a pair is unchanged; at least `beta_slow`."""
    beta_slow: PositiveFloat = 1.0
    """Rotations within L tokens below which a pair's frequency is divided by the whole factor."""
    truncate: bool = True
    """Whether low and high are rounded outwards to whole pairs."""
    attention_factor: Annotated[PositiveFloat | None, Supports(*EVERY_OPERATION)] = None
    """Factor on rotated queries and keys; null for 0.1·ln(factor) + 1, or m(mscale)/m(mscale_all_dim) if both are set,
    m(x) = 0.1·x·ln(factor) + 1."""
    mscale: Annotated[PositiveFloat | None, Supports(*EVERY_OPERATION)] = None
    """Coefficient in the numerator of the attention factor; used only together with `mscale_all_dim`."""
    mscale_all_dim: Annotated[PositiveFloat | None, Supports(*EVERY_OPERATION)] = None
    """Coefficient in the denominator of the attention factor, and of `scale_scores`."""
    scale_scores: Annotated[bool, Supports(*EVERY_OPERATION)] = False
    """Whether scores are also multiplied by m(mscale_all_dim)² (DeepSeek V2 and V3, arXiv:2405.04434)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.beta_fast < self.beta_slow:
            raise SpecError("beta_fast", f"must be at least beta_slow = {self.beta_slow}, not {self.beta_fast}")
        if self.scale_scores and self.mscale_all_dim is None:
            raise SpecError("scale_scores", "needs mscale_all_dim")
        return self

    @property
    def magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale is not None and self.mscale_all_dim is not None:
            every = attention_temperature(self.factor, self.mscale_all_dim)
            return attention_temperature(self.factor, self.mscale) / every
        return attention_temperature(self.factor)

    @property
    def score_factor(self) -> float:
        if not self.scale_scores or self.mscale_all_dim is None:
            return 1.0
        return attention_temperature(self.factor, self.mscale_all_dim) ** 2

    def check(self, dim: int, base: float) -> None:
        if base == 1:
            raise SpecError("", "YaRN needs a base above 1: with base 1, all pairs rotate alike")

    def frequencies(self, base: float, dim: int, length: Tensor) -> Tensor:
        theta = rotation(base, dim, length.device)
        low, high = self._range(base, dim)
        ramp = ((torch.arange(theta.shape[0], device=length.device) - low) / (high - low)).clamp(0, 1)
        return (1 - ramp) * theta + ramp * theta / self.factor

    def _range(self, base: float, dim: int) -> tuple[float, float]:
        """(low, high): pair indices between which frequencies are blended; never equal."""

        def pair(turns: float) -> float:
            return dim * math.log(self.original_length / (2 * math.pi * turns)) / (2 * math.log(base))

        low, high = pair(self.beta_fast), pair(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        return low, high if high != low else high + 0.001
