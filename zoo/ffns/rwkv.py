"""Channel mixing of RWKV-6 and RWKV-7."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import TokenShift, mixed
from zoo.ffns import FfnLayer
from zoo.ffns._dense import Wide, Width
from zoo.init import Linear
from zoo.settings.field_tags import Fact
from zoo.site import ForwardPass, LayerSite, PartCost, matmul_cost


class TokenShifted(Wide):
    """Base of layers whose hidden features also read the previous token."""

    multiple_of: Annotated[PositiveInt, Fact.SIZE] = 8

    @property
    def reaches_back(self) -> bool:
        return True

    def cache_elements(self, d_model: int) -> int:
        return d_model


class GatedChannelMix(TokenShifted):
    """y_t = σ(W_r x^r_t) ⊙ W_v max(0, W_k x^k_t)², x^□_t = x_t + (x_{t−1} − x_t) ⊙ μ_□. Peng et al. 2024 (Eagle and
    Finch), arXiv:2404.05892."""

    kind: Literal["rwkv6"] = "rwkv6"
    paired_examples: ClassVar[int | None] = 0
    supports: ClassVar[Operations] = OF_MODULES
    d_ff: Annotated[Width, Fact.SIZE, Fact.WIDTH] = "7/2x"

    def build(self, site: LayerSite) -> FfnLayer:
        return GatedChannelMixLayer(self, site.d_model)

    def cost(self, d_model: int) -> PartCost:
        matrix = 2 * d_model * self.width + d_model**2
        return matmul_cost(matrix + 2 * d_model, matrix)


class GatedChannelMixLayer(FfnLayer):
    """x: (B, T, D) → (B, T, D)."""

    roles: ClassVar = {"shares": "gain"}
    initial: ClassVar = {"shares": 0.5}

    def __init__(self, spec: GatedChannelMix, d_model: int) -> None:
        super().__init__()
        self.shift = TokenShift(d_model)
        self.shares = nn.Parameter(torch.full((2, d_model), 0.5))
        """μ_k and μ_r: (2, D)."""
        self.up = Linear(d_model, spec.width, role="input")
        self.down = Linear(spec.width, d_model, role="output")
        self.gate = Linear(d_model, d_model, role="input")

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        before = self.shift(x, step, cache)
        for_k, for_r = (mixed(x, before, share) for share in self.shares.unbind())
        return self.gate(for_r).sigmoid() * self.down(self.up(for_k).relu().square())

    def new_cache(self, batch: int, dtype: torch.dtype) -> LayerCache:
        return self.shift.new_cache(batch, self.shares, dtype)


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
