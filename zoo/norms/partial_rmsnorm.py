"""Partial RMSNorm."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.norms import Norm
from zoo.settings.axis import Examples


class PartialRMSNorm(Norm):
    """y = x · rsqrt(mean(x_1² … x_k²) + ε) · g, k = ⌈p·D⌉: the root mean square is estimated from the first features.

    pRMSNorm of Zhang & Sennrich 2019, arXiv:1910.07467, §4, with p = 6.25 %. If the first k features are near zero and
    the others are not, as after a ReLU, y is large: up to x/√ε.
    """

    examples: ClassVar[Examples] = ({"fraction": 0.5},)
    kind: Literal["partial_rmsnorm"] = "partial_rmsnorm"
    supports: ClassVar[Operations] = BY_TOKEN
    eps: PositiveFloat = 1e-6
    """ε: added to the mean square, against division by zero."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.0625
    """p: share of the features, the first ones, from which the root mean square is computed."""

    def build(self, dim: int) -> nn.Module:
        return PartialRMSNormLayer(dim, math.ceil(dim * self.fraction), self.eps)

    def parameters(self, dim: int) -> int:
        return dim


class PartialRMSNormLayer(nn.Module):
    """x: (..., D) → (..., D). The mean square is computed in float32 whatever the input's dtype."""

    roles: ClassVar = {"gain": "gain"}

    def __init__(self, dim: int, read: int, eps: float) -> None:
        super().__init__()
        self.read = read
        self.eps = eps
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide[..., : self.read].pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.gain
