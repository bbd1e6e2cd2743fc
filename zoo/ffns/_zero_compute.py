"""Experts without a feed-forward layer: zero, copy and constant."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from zoo.compatibility.traits import Operation
from zoo.ffns import Ffn
from zoo.init import Linear
from zoo.settings.axis import is_off
from zoo.settings.field_tags import MaxInTests, Supports


class Routed(Ffn):
    """Base of layers that route tokens to experts, with an FFN or without."""

    experts: Annotated[PositiveInt, MaxInTests(8)] = 8
    """E: number of routed experts with an FFN; shared experts are not counted."""
    top_k: Annotated[PositiveInt, MaxInTests(2)] = 2
    """k: number of experts that a token is sent to."""
    zero_experts: Annotated[NonNegativeInt, MaxInTests(1), Supports(Operation.SHARDING)] = Field(
        default=0, exclude_if=is_off
    )
    """Number of further experts that a token can be sent to with output zero, E(x) = 0 (MoE++, arXiv:2410.07348)."""
    copy_experts: Annotated[NonNegativeInt, MaxInTests(1), Supports(Operation.SHARDING)] = Field(
        default=0, exclude_if=is_off
    )
    """Number of further experts that return their input, E(x) = x (MoE++; LongCat-Flash, arXiv:2509.01322)."""
    constant_experts: Annotated[NonNegativeInt, MaxInTests(1), Supports(Operation.SHARDING)] = Field(
        default=0, exclude_if=is_off
    )
    """Number of further experts that mix their input with a learned vector v, E(x) = α₁ x + α₂ v,
    α = softmax(W_c x) (MoE++)."""
    tau: PositiveFloat = Field(default=1.0, exclude_if=lambda tau: tau == 1.0)
    """τ: target load of an expert with an FFN, relative to one without (MoE++). FLOPs are declared for that load; a
    router that deviates from it uses more or fewer."""

    @property
    def zero_compute(self) -> int:
        """Number of routed experts without an FFN."""
        return self.zero_experts + self.copy_experts + self.constant_experts

    @property
    def choices(self) -> int:
        """Number of experts that a token can be sent to."""
        return self.experts + self.zero_compute

    @property
    def even_load(self) -> list[float]:
        """Each expert's share of the assignments if the load is balanced."""
        total = self.tau * self.experts + self.zero_compute
        return [self.tau / total] * self.experts + [1 / total] * self.zero_compute

    @property
    def ffns_per_token(self) -> float:
        """Mean number of experts with an FFN that a token is sent to, if the load is balanced."""
        if not self.zero_compute:
            return self.top_k
        return self.top_k * self.tau * self.experts / (self.tau * self.experts + self.zero_compute)


class ZeroComputeExperts(nn.Module):
    """Σ_j w_j E_j(x) over the chosen experts j that have no FFN: E(x) = 0, E(x) = x, or E(x) = α₁ x + α₂ v with
    α = softmax(W_c x). Jin et al. 2024 (MoE++), arXiv:2410.07348, eq. 3 to 5.

    rows: (N, D), chosen and weights: (N, k) → (N, D). Expert indices: those with an FFN, then zero, copy, constant. W_c
    of every constant expert reads all rows, chosen or not, which costs only two outputs per row and expert.
    """

    roles: ClassVar = {"constants": "bias"}
    initial_std: ClassVar = {"constants": 0.02}

    def __init__(self, first: int, zeros: int, copies: int, constants: int, features: int) -> None:
        super().__init__()
        self.copies = range(first + zeros, first + zeros + copies)
        self.first_constant = self.copies.stop
        self.shares = Linear(features, 2 * constants, role="input") if constants else None
        """W_c: (2C, D)."""
        self.constants = nn.Parameter(torch.zeros(constants, features)) if constants else None
        """v: (C, D)."""

    def forward(self, rows: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        copied = ((chosen >= self.copies.start) & (chosen < self.copies.stop)) * weights
        out = copied.sum(-1, keepdim=True).to(rows.dtype) * rows
        if self.constants is None or self.shares is None:
            return out
        number = torch.arange(len(self.constants), device=chosen.device) + self.first_constant
        weight = ((chosen[..., None] == number) * weights[..., None]).sum(-2)  # (N, C)
        kept, replaced = self.shares(rows).unflatten(-1, (-1, 2)).softmax(-1).unbind(-1)  # α₁, α₂: (N, C)
        weight = weight.to(kept.dtype)
        out = out + (weight * kept).sum(-1, keepdim=True) * rows
        mixed: Tensor = out + (weight * replaced) @ self.constants.to(kept.dtype)
        return mixed
