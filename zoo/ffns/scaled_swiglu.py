"""SwiGLU with a learned scale per hidden feature."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, Operations
from zoo.ffns import FfnLayer
from zoo.ffns._activations import GATED, Activation
from zoo.ffns._dense import DenseLayer, Gated
from zoo.site import PartCost


class ScaledSwiGLU(Gated):
    """y = W_down (SiLU(√D s_v ⊙ W_gate x) ⊙ s_u ⊙ W_up x), s_u, s_v: (F,), initially 1. Loshchilov et al. 2024 (nGPT),
    arXiv:2410.01131, where x and the matrices' rows have unit norm, for which √D compensates."""

    kind: Literal["scaled_swiglu"] = "scaled_swiglu"
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER | BY_TOKEN

    def hidden(self) -> Activation:
        return GATED["swiglu"]

    def layer(self, d_model: int, **settings: Any) -> FfnLayer:
        return ScaledLayer(d_model, self.width, **settings)

    def cost(self, d_model: int) -> PartCost:
        return super().cost(d_model) + PartCost(2 * self.width)


class ScaledLayer(DenseLayer):
    """x: (B, T, D) → (B, T, D)."""

    roles: ClassVar = {"scale_gate": "gain", "scale_up": "gain"}

    def __init__(self, d_model: int, d_ff: int, activation: Activation, **settings: Any) -> None:
        super().__init__(d_model, d_ff, activation, **settings)
        self.factor = math.sqrt(d_model)
        self.scale_gate, self.scale_up = nn.Parameter(torch.ones(d_ff)), nn.Parameter(torch.ones(d_ff))

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        gate, up = super().project(x)
        return gate * self.scale_gate * self.factor, up * self.scale_up
