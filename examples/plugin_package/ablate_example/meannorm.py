"""Norm by the mean absolute feature."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.norms import Norm


class MeanNorm(Norm):
    """y = x / max(mean_i |x_i|, ε) · g."""

    kind: Literal["meannorm"] = "meannorm"
    supports: ClassVar[Operations] = EVERY_OPERATION
    eps: PositiveFloat = 1e-6

    def build(self, dim: int) -> nn.Module:
        return MeanNormLayer(dim, self.eps)

    def parameters(self, dim: int) -> int:
        return dim


class MeanNormLayer(nn.Module):
    """x: (..., D) → (..., D)."""

    roles: ClassVar = {"gain": "gain"}

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().mean(-1, keepdim=True).clamp(min=self.eps) * self.gain
