"""How fast a head forgets, decided by the token."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SLOWEST, FASTEST = 1.0, 16.0
"""Rates A that heads start with (Mamba-2)."""
SHORTEST, LONGEST = 1e-3, 1e-1
"""Steps Δ that heads start with, where the token says nothing (Mamba, arXiv:2312.00752)."""


class Decay(nn.Module):
    """raw: (B, T, H) → Δ = softplus(raw + b) and log decay −A·Δ, A = exp(a): both (B, H, T), float32 or more.

    Heads start with A evenly spread over [1, 16] and Δ evenly over the logarithms of [0.001, 0.1], in another order, in
    place of being drawn there. Δ is clamped to [least, most].
    """

    roles: ClassVar = {"log_rate": "bias", "step_bias": "bias"}

    def __init__(self, heads: int, least: float = 0.0, most: float | None = None) -> None:
        super().__init__()
        self.least, self.most = least, most
        even = (torch.arange(heads, dtype=torch.float64) + 0.5) / heads
        shuffled = (torch.arange(heads, dtype=torch.float64) * (math.sqrt(5) - 1) / 2 + 0.5) % 1
        step = (math.log(SHORTEST) + shuffled * math.log(LONGEST / SHORTEST)).exp()
        self.initial = {
            "log_rate": (SLOWEST + even * (FASTEST - SLOWEST)).log().float(),
            # The inverse of softplus.
            "step_bias": (step + torch.log(-torch.expm1(-step))).float(),
        }
        self.log_rate = nn.Parameter(self.initial["log_rate"].clone())
        self.step_bias = nn.Parameter(self.initial["step_bias"].clone())

    def forward(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        kind = torch.promote_types(raw.dtype, torch.float32)
        step = F.softplus(raw.to(kind) + self.step_bias.to(kind)).transpose(1, 2)
        if self.least or self.most is not None:
            step = step.clamp(self.least, self.most)
        return step, -self.log_rate.to(kind).exp()[:, None] * step
