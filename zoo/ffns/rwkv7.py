"""RWKV-7's channel mixing."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import TokenShift, mixed
from zoo.ffns import FfnLayer
from zoo.ffns._shifted import TokenShifted
from zoo.init import Linear
from zoo.site import ForwardPass, LayerSite, PartCost, matmul_cost


class ChannelMix(TokenShifted):
    """y_t = W_v max(0, W_k (x_t + (x_{t−1} − x_t) ⊙ μ))². Peng et al. 2025 (RWKV-7), arXiv:2503.14456.

    μ: (D,).
    """

    kind: Literal["rwkv7"] = "rwkv7"
    supports: ClassVar[Operations] = OF_MODULES

    def build(self, site: LayerSite) -> FfnLayer:
        return ChannelMixLayer(self, site.d_model)

    def cost(self, d_model: int) -> PartCost:
        matrix = 2 * d_model * self.width
        return matmul_cost(matrix + d_model, matrix)


class ChannelMixLayer(FfnLayer):
    """x: (B, T, D) → (B, T, D)."""

    roles: ClassVar = {"share": "gain"}
    initial: ClassVar = {"share": 0.5}

    def __init__(self, spec: ChannelMix, d_model: int) -> None:
        super().__init__()
        self.shift = TokenShift(d_model)
        self.share = nn.Parameter(torch.full((d_model,), 0.5))
        self.up = Linear(d_model, spec.width, role="input")
        self.down = Linear(spec.width, d_model, role="output")

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        return self.down(self.up(mixed(x, self.shift(x, step, cache), self.share)).relu().square())

    def new_cache(self, batch: int, dtype: torch.dtype) -> LayerCache:
        return self.shift.new_cache(batch, self.share, dtype)
