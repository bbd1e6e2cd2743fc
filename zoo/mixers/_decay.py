"""Data-dependent decay of a head's state."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SLOWEST, FASTEST = 1.0, 16.0
"""Range of the heads' initial rates A (Mamba-2)."""
SHORTEST, LONGEST = 1e-3, 1e-1
"""Range of the heads' initial steps Δ for an input of 0 (Mamba, arXiv:2312.00752)."""


def even(count: int) -> Tensor:
    """Evenly spaced numbers in (0, 1), ascending: (count,), float64."""
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def first_rates(count: int) -> Tensor:
    """log A, with A evenly spaced in [1, 16]: (count,)."""
    return (SLOWEST + even(count) * (FASTEST - SLOWEST)).log().float()


def first_steps(count: int) -> Tensor:
    """b with softplus(b) evenly spaced on a log scale in [0.001, 0.1], shuffled: (count,)."""
    shuffled = (torch.arange(count, dtype=torch.float64) * (math.sqrt(5) - 1) / 2 + 0.5) % 1
    step = (math.log(SHORTEST) + shuffled * math.log(LONGEST / SHORTEST)).exp()
    # The inverse of softplus.
    return (step + torch.log(-torch.expm1(-step))).float()


class Decay(nn.Module):
    """raw: (B, T, H) → Δ = softplus(raw + b) and log decay −A·Δ, A = exp(a): both (B, H, T), float32 or wider.

    Initial values are spaced, not drawn: A evenly in [1, 16], Δ evenly on a log scale in [0.001, 0.1] and shuffled. Δ
    is clamped to [least, most].
    """

    roles: ClassVar = {"log_rate": "bias", "step_bias": "bias"}

    def __init__(self, heads: int, least: float = 0.0, most: float | None = None) -> None:
        super().__init__()
        self.least, self.most = least, most
        self.initial = {"log_rate": first_rates(heads), "step_bias": first_steps(heads)}
        self.log_rate = nn.Parameter(self.initial["log_rate"].clone())
        self.step_bias = nn.Parameter(self.initial["step_bias"].clone())

    def forward(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        kind = torch.promote_types(raw.dtype, torch.float32)
        step = F.softplus(raw.to(kind) + self.step_bias.to(kind)).transpose(1, 2)
        if self.least or self.most is not None:
            step = step.clamp(self.least, self.most)
        return step, -self.log_rate.to(kind).exp()[:, None] * step


class ChannelDecay(nn.Module):
    """raw: (B, T, H·n) → log decay (B, H, T, n), float32 or wider: −A softplus(raw + b), or floor · σ(A (raw + b)) with
    a floor, its lower bound. A = exp(a) is one number per head, b one per feature."""

    roles: ClassVar = {"log_rate": "bias", "step_bias": "bias"}

    def __init__(self, heads: int, features: int, floor: float | None) -> None:
        super().__init__()
        self.heads, self.floor = heads, floor
        self.initial = {"log_rate": first_rates(heads), "step_bias": first_steps(heads * features)}
        self.log_rate = nn.Parameter(self.initial["log_rate"].clone())
        self.step_bias = nn.Parameter(self.initial["step_bias"].clone())

    def forward(self, raw: Tensor) -> Tensor:
        kind = torch.promote_types(raw.dtype, torch.float32)
        moved = (raw.to(kind) + self.step_bias.to(kind)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        rate = self.log_rate.to(kind).exp()[:, None, None]
        return -rate * F.softplus(moved) if self.floor is None else self.floor * torch.sigmoid(rate * moved)
