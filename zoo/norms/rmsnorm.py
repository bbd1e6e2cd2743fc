"""RMSNorm."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor, nn

from zoo.compatibility.traits import EVERY_OPERATION, Operations
from zoo.errors import SpecError
from zoo.kernels.compiling import device_type, rms_norm
from zoo.norms import Norm
from zoo.settings.axis import Examples
from zoo.settings.field_tags import Supports, ValuesInTests


class RMSNorm(Norm):
    """y = x · rsqrt(mean(x²) + ε) · g. Zhang & Sennrich 2019, arXiv:1910.07467."""

    examples: ClassVar[Examples] = ({}, {"unit_offset": True}, {"gain": False})
    kind: Literal["rmsnorm"] = "rmsnorm"
    supports: ClassVar[Operations] = EVERY_OPERATION
    eps: Annotated[PositiveFloat, ValuesInTests()] = 1e-6
    """ε: added to the mean square, against division by zero."""
    unit_offset: Annotated[bool, Supports(*EVERY_OPERATION)] = False
    """Whether the gain is 1 + w with w initially zero (Gemma, arXiv:2403.08295)."""
    gain: Annotated[bool, ValuesInTests()] = Field(default=True, exclude_if=lambda gain: gain)
    """Whether there is a learned gain g, (D,). Llama 4's norm of queries and keys has none."""

    @model_validator(mode="after")
    def _offset_of_a_gain(self) -> Self:
        if self.unit_offset and not self.gain:
            raise SpecError("unit_offset", "needs gain: true")
        return self

    def build(self, dim: int) -> nn.Module:
        return RMSNormLayer(dim, self)

    def parameters(self, dim: int) -> int:
        return dim * self.gain


class RMSNormLayer(nn.Module):
    """x: (..., D) → (..., D). The mean square is computed in float32 whatever the input's dtype.

    Off CUDA the result is cast back before the gain, as in Llama, or after it with `unit_offset`, as in Gemma.
    """

    roles: ClassVar = {"gain": "gain"}

    def __init__(self, dim: int, spec: RMSNorm) -> None:
        super().__init__()
        self.eps = spec.eps
        self.gain_offset = float(spec.unit_offset)
        self.initial = {"gain": 1.0 - self.gain_offset}
        self.gain = nn.Parameter(torch.full((dim,), self.initial["gain"])) if spec.gain else None

    def forward(self, x: Tensor) -> Tensor:
        # torch's rms_norm is one operation instead of six, on CUDA one kernel, too. It needs the gain's dtype as input,
        # and rounds once.
        gain: Tensor | None = self.gain
        if x.dtype is torch.float32 or device_type(x) == "cuda":
            if gain is None:
                return rms_norm(x, None, self.eps)
            gain = gain + self.gain_offset if self.gain_offset else gain
            wide = x if x.dtype is gain.dtype else x.to(torch.promote_types(x.dtype, gain.dtype))
            return rms_norm(wide, gain, self.eps)
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        if gain is None:
            return wide.to(x.dtype)
        if self.gain_offset:
            return (wide * (self.gain_offset + gain.float())).to(x.dtype)
        return wide.to(x.dtype) * gain
