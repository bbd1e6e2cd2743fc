"""LayerNorm."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import PositiveFloat, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.errors import SpecError
from zoo.norms import Norm
from zoo.settings.axis import Examples
from zoo.settings.field_tags import Supports


class LayerNorm(Norm):
    """y = (x − mean(x)) · rsqrt(var(x) + ε) · g + b. Ba et al. 2016, arXiv:1607.06450."""

    examples: ClassVar[Examples] = (
        {},
        {"bias": False, "unit_offset": True},
        {"gain": False, "bias": False},
    )
    kind: Literal["layernorm"] = "layernorm"
    supports: ClassVar[Operations] = EVERY_OPERATION
    eps: PositiveFloat = 1e-5
    """ε: added to the variance, against division by zero."""
    bias: bool = True
    """Whether there is a learned bias b, (D,)."""
    gain: bool = True
    """Whether there is a learned gain g, (D,). OLMo, arXiv:2402.00838, has neither gain nor bias."""
    unit_offset: Annotated[bool, Supports(*EVERY_OPERATION)] = False
    """Whether the gain is 1 + w with w initially zero (LayerNorm1P of Nemotron-4, arXiv:2402.16819)."""

    @model_validator(mode="after")
    def _offset_of_a_gain(self) -> Self:
        if self.unit_offset and not self.gain:
            raise SpecError("unit_offset", "needs gain: true")
        return self

    def build(self, dim: int) -> nn.Module:
        return LayerNormLayer(self, dim)

    def parameters(self, dim: int) -> int:
        return dim * (self.gain + self.bias)


class LayerNormLayer(nn.Module):
    """x: (..., D) → (..., D)."""

    roles: ClassVar = {"gain": "gain", "bias": "bias"}

    def __init__(self, spec: LayerNorm, dim: int) -> None:
        super().__init__()
        self.spec = spec
        self.gain_offset = float(spec.unit_offset)
        self.initial = {"gain": 1.0 - self.gain_offset}
        self.gain = nn.Parameter(torch.full((dim,), self.initial["gain"])) if spec.gain else None
        self.bias = nn.Parameter(torch.zeros(dim)) if spec.bias else None

    def forward(self, x: Tensor) -> Tensor:
        gain = self.gain + self.gain_offset if self.gain is not None and self.gain_offset else self.gain
        return F.layer_norm(x, x.shape[-1:], gain, self.bias, self.spec.eps)
