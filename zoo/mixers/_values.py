"""Values of the first layer, reused by all."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from zoo.site import ForwardPass


class ValueResidual(nn.Module):
    """v ← λ₁ v + λ₂ v_first, with learned λ that start at ½. Zhou et al. 2024, arXiv:2410.17897 (learnable ResFormer).

    v: (B, K, T, d); v_first are the values of the first layer that asks, before its own mixing. That layer has λ too,
    unlike in the paper: there they only scale its values by λ₁ + λ₂ = 1 at the start, which W_v could do as well.
    """

    roles: ClassVar = {"weights": "gain"}
    initial: ClassVar = {"weights": 0.5}

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.full((2,), 0.5))

    def forward(self, v: Tensor, step: ForwardPass) -> Tensor:
        return self.weights[0] * v + self.weights[1] * first_values(v, step)


def with_others(v: Tensor, residual: ValueResidual | None, step: ForwardPass) -> Tensor:
    """v: (B, K, T, d), mixed with the first layer's and with the tokens' own where the model has it so."""
    if residual is not None:
        v = residual(v, step)
    return v if step.revalue is None else step.revalue(v)


def first_values(v: Tensor, step: ForwardPass) -> Tensor:
    """Those of the first layer of the pass that asks, which are its own."""
    return step.once("first values", lambda: v)
