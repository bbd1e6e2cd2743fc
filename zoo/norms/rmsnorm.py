"""RMSNorm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from zoo.facts import Tried
from zoo.norms import Norm


class RMSNorm(Norm):
    """y = x · rsqrt(mean(x²) + ε) · g. Zhang & Sennrich 2019, arXiv:1910.07467."""

    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({}, {"unit_offset": True})
    kind: Literal["rmsnorm"] = "rmsnorm"
    eps: Annotated[PositiveFloat, Tried()] = 1e-6
    unit_offset: bool = False
    """The gain is 1 + w with w from zero (Gemma, arXiv:2403.08295)."""

    def build(self, dim: int) -> nn.Module:
        return RMSNormLayer(dim, self.eps, self.unit_offset)

    def parameters(self, dim: int) -> int:
        return dim


class RMSNormLayer(nn.Module):
    """x: (..., D) → (..., D). The mean is taken in float32 whatever the input's type.

    The result is cast back before the gain, as in Llama, and after it with a unit offset, as in Gemma.
    """

    roles: ClassVar = {"gain": "gain"}

    def __init__(self, dim: int, eps: float, unit_offset: bool) -> None:
        super().__init__()
        self.eps = eps
        self.gain_offset = float(unit_offset)
        self.initial = {"gain": 1.0 - self.gain_offset}
        self.gain = nn.Parameter(torch.full((dim,), self.initial["gain"]))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        if self.gain_offset:
            return (wide * (self.gain_offset + self.gain.float())).to(x.dtype)
        return wide.to(x.dtype) * self.gain
