"""Each branch reads a learned mixture of a token's input and that of the token before."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from zoo.block_features import BeforeBranches, BlockFeatureLayer, Place
from zoo.building_blocks import (
    ALL_BUT_TRANSFER,
    NONE,
    Examples,
    ForwardPass,
    Grounds,
    LayerCache,
    Operations,
    PartCost,
    PartsCache,
    TokenShift,
)


class ShiftedInput(BeforeBranches):
    """h_t ← h_t + μ ⊙ (h_{t−1} − h_t) on the input of a branch, μ: (D,), 0 at the start. Peng et al. 2023 (RWKV),
    arXiv:2305.13048, before any mixer and FFN. h: (B, T, D)."""

    examples: ClassVar[Examples] = ({}, {"before": ["ffn"]})
    needs: ClassVar[Grounds] = NONE
    breaks: ClassVar[Grounds] = NONE
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER
    reaches_back: ClassVar[bool] = True

    def build(self, d_model: int, norm: Callable[[], nn.Module]) -> Shifts:
        return Shifts(set(self.before), d_model)

    def cost(self, d_model: int, norm: int) -> PartCost:
        return PartCost(d_model * len(set(self.before)))

    def cache_elements(self, d_model: int) -> int:
        return d_model * len(set(self.before))


class Shifts(BlockFeatureLayer):
    """μ of each branch: (D,)."""

    name: ClassVar[str] = "shifted"

    def __init__(self, places: set[Place], d_model: int) -> None:
        super().__init__()
        self.shares = nn.ParameterDict({place: torch.zeros(d_model) for place in sorted(places)})
        self.shares.roles = dict.fromkeys(places, "gain")
        self.shares.initial = dict.fromkeys(places, 0.0)
        self.shift = TokenShift(d_model)

    def new_cache(self, batch: int, dtype: torch.dtype) -> LayerCache:
        return PartsCache({place: self.shift.new_cache(batch, mu, dtype) for place, mu in self.shares.items()})

    def before(self, branch: Place, h: Tensor, step: ForwardPass, cache: LayerCache | None) -> Tensor:
        if branch not in self.shares:
            return h
        own = cache.parts[branch] if isinstance(cache, PartsCache) else None
        return h + self.shares[branch] * (self.shift(h, step, own) - h)
