"""Dynamic Tanh."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, Operations
from zoo.norms import Norm


class DyT(Norm):
    """y = tanh(α·x) · g + b, with a learned scalar α and no statistics. Zhu et al. 2025, arXiv:2503.10622."""

    kind: Literal["dyt"] = "dyt"
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER | BY_TOKEN
    alpha: PositiveFloat = 0.5
    """Initial value of α."""

    def build(self, dim: int) -> nn.Module:
        return DyTLayer(dim, self.alpha)

    def parameters(self, dim: int) -> int:
        return 2 * dim + 1


class DyTLayer(nn.Module):
    """x: (..., D) → (..., D)."""

    roles: ClassVar = {"alpha": "gain", "gain": "gain", "bias": "bias"}

    def __init__(self, dim: int, alpha: float) -> None:
        super().__init__()
        self.initial = {"alpha": alpha}
        self.alpha = nn.Parameter(torch.full((1,), alpha))
        self.gain = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.alpha * x) * self.gain + self.bias
