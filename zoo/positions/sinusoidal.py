"""Sinusoidal absolute positions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.positions import Position, PositionLayer
from zoo.settings.axis import Examples
from zoo.site import ForwardPass


class Sinusoidal(Position):
    """Adds sines and cosines of p·θ_i to the embedded token at position p. Vaswani et al. 2017, arXiv:1706.03762.

    `layout: interleaved`, the paper's §3.5: features 2i and 2i + 1 are sin and cos, θ_i = base^(−2i/D).
    `concatenated`, the authors' tensor2tensor: all sines, then all cosines, θ_i = base^(−i/(D/2 − 1)), so that the
    lowest frequency is exactly 1/base; an odd last feature is zero.
    """

    examples: ClassVar[Examples] = ({}, {"layout": "concatenated"})
    kind: Literal["sinusoidal"] = "sinusoidal"
    supports: ClassVar[Operations] = BY_TOKEN
    absolute: ClassVar[bool] = True
    base: Annotated[float, Field(ge=1)] = 10_000.0
    """Base of the frequencies θ_i: about the ratio of the highest frequency to the lowest."""
    layout: Literal["interleaved", "concatenated"] = "interleaved"
    """Order of features: `interleaved`, alternating sin and cos; `concatenated`, all sines, then all cosines."""

    def build(self, head_dim: int, heads: int) -> PositionLayer:
        return PositionLayer()

    def build_shared(self, d_model: int, heads: int) -> nn.Module:
        return SinusoidalTable(self, d_model)


class SinusoidalTable(nn.Module):
    """step → (T, D), or (B, T, D) if rows have their own positions."""

    def __init__(self, spec: Sinusoidal, d_model: int) -> None:
        super().__init__()
        self.spec = spec
        self.dim = d_model

    def forward(self, step: ForwardPass) -> Tensor:
        places = step.positions[..., None].float()
        if self.spec.layout == "interleaved":
            pairs = torch.arange(0, self.dim, 2, device=places.device)
            angles = places * self.spec.base ** (-pairs / self.dim)
            return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., : self.dim]
        half = self.dim // 2
        angles = places * self.spec.base ** (-torch.arange(half, device=places.device) / max(half - 1, 1))
        return F.pad(torch.cat((angles.sin(), angles.cos()), dim=-1), (0, self.dim % 2))
