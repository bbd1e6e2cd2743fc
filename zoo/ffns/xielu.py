"""xIELU feed-forward layer."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, Operations
from zoo.errors import SpecError
from zoo.ffns._activations import Activation
from zoo.ffns._dense import Dense
from zoo.site import PartCost

SLOPE, START = 0.5, 0.8
"""β, the slope at zero; initial value of α_p and α_n."""


class XIELU(Dense):
    """y = W_down xIELU(W_up x), with xIELU(z) = α_p z² + βz for z > 0 and α_n (e^z − 1 − z) + βz below, β = ½,
    α_p = softplus(a), α_n = β + softplus(b), a and b learned per layer. Huang & Schlag 2024, arXiv:2411.13010; Apertus,
    arXiv:2509.14233. Both α start at 0.8."""

    paired_examples: ClassVar[int | None] = 0
    kind: Literal["xielu"] = "xielu"
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER | BY_TOKEN

    def resolve(self, d_model: int) -> Self:
        if self.sparsity:
            raise SpecError(
                "sparsity", "not supported with xielu: the threshold removes negative values, where α_n applies"
            )
        return super().resolve(d_model)

    def hidden(self) -> Activation:
        return XIELUActivation()

    def cost(self, d_model: int) -> PartCost:
        return super().cost(d_model) + PartCost(2)


class XIELUActivation(nn.Module):
    """z → xIELU(z), of the same shape."""

    roles: ClassVar = {"positive": "bias", "negative": "bias"}
    initial: ClassVar = {"positive": math.log(math.expm1(START)), "negative": math.log(math.expm1(START - SLOPE))}

    def __init__(self) -> None:
        super().__init__()
        self.positive, self.negative = (nn.Parameter(torch.zeros(1)) for _ in range(2))

    def forward(self, z: Tensor) -> Tensor:
        above = F.softplus(self.positive).to(z.dtype) * z.square()
        # Clamped, since the exponential of a large z would overflow and make the gradient NaN.
        below = (SLOPE + F.softplus(self.negative)).to(z.dtype) * (torch.expm1(z.clamp(max=0.0)) - z)
        return torch.where(z > 0, above, below) + SLOPE * z
