"""Canon layers: short convolutions over the inputs of branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, cast

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from zoo.block_features import BeforeBranches, BlockFeatureLayer, Place
from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.parts import PartsCache
from zoo.compatibility.traits import ALL_BUT_TRANSFER, NONE, Grounds, Operations
from zoo.conv import ShortConv, conv_cost
from zoo.site import ForwardPass, PartCost


class Canon(BeforeBranches):
    """h ← h + conv(h) on the input of a branch, with a depthwise convolution over a token and the W − 1 tokens before
    it. Allen-Zhu 2025, arXiv:2512.17351.

    The paper's places: A is before the mixer, C before the FFN. B, on queries, keys and values, is the mixer's own
    `conv`, and D, on the hidden features, the FFN's: these have no residual h +, which their last weight can learn.
    With `position: nope` only the convolutions tell the model the order of nearby tokens.
    """

    needs: ClassVar[Grounds] = NONE
    breaks: ClassVar[Grounds] = NONE
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER

    reaches_back: ClassVar[bool] = True

    width: PositiveInt = 4
    """W: tokens that a convolution sees, the current one included."""

    def build(self, d_model: int, norm: Callable[[], nn.Module]) -> CanonLayers:
        return CanonLayers({place: CanonLayer(d_model, self.width) for place in sorted(set(self.before))})

    def cost(self, d_model: int, norm: int) -> PartCost:
        return conv_cost(d_model * len(set(self.before)), self.width)

    def cache_elements(self, d_model: int) -> int:
        """Cache elements per sequence: the last W − 1 inputs of each convolution."""
        return (self.width - 1) * d_model * len(set(self.before))


class CanonLayers(BlockFeatureLayer, nn.ModuleDict):
    """One layer for each branch of `before`."""

    name: ClassVar[str] = "canon"
    order: ClassVar[int] = 2

    def before(self, branch: Place, h: Tensor, step: ForwardPass, cache: LayerCache | None) -> Tensor:
        if branch not in self:
            return h
        kept = kept_by(self, cache, PartsCache)
        out: Tensor = self[branch](h, step, None if kept is None else kept.parts[branch])
        return out

    def new_cache(self, batch: int, dtype: torch.dtype) -> LayerCache:
        convs = {place: cast(CanonLayer, layer).conv for place, layer in self.items()}
        return PartsCache({place: conv.new_cache(batch, dtype) for place, conv in convs.items()})


class CanonLayer(nn.Module):
    """h: (B, T, D) → (B, T, D)."""

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.conv = ShortConv(d_model, width)

    def forward(self, h: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        out: Tensor = h + self.conv(h, step, cache)
        return out
