"""ScaleNorm."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, Operations
from zoo.norms import Norm


class L2Norm(Norm):
    """y = g · x / max(‖x‖₂, ε) with a learned scalar g, initially √D. ScaleNorm, Nguyen & Salazar 2019,
    arXiv:1910.05895."""

    kind: Literal["l2norm"] = "l2norm"
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER | BY_TOKEN
    eps: PositiveFloat = 1e-5
    """ε: lower bound of the divisor, against division by zero."""

    def build(self, dim: int) -> nn.Module:
        return L2NormLayer(dim, self.eps)

    def parameters(self, dim: int) -> int:
        return 1


class L2NormLayer(nn.Module):
    """x: (..., D) → (..., D). ‖x‖₂ is computed in float32 whatever the input's dtype."""

    roles: ClassVar = {"gain": "gain"}

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.initial = {"gain": math.sqrt(dim)}
        self.gain = nn.Parameter(torch.full((1,), self.initial["gain"]))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return F.normalize(wide, dim=-1, eps=self.eps).to(x.dtype) * self.gain
