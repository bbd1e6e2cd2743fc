"""No feed-forward layer."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import ALL_BUT_TRANSFER, BY_TOKEN, Operations
from zoo.ffns import Ffn, FfnLayer
from zoo.site import ForwardPass, LayerSite, PartCost


class NoFfn(Ffn):
    """No FFN: the block is only a mixer, as in Mamba (Gu & Dao 2023, arXiv:2312.00752), without a second norm."""

    absent: ClassVar[bool] = True
    kind: Literal["none"] = "none"
    supports: ClassVar[Operations] = ALL_BUT_TRANSFER | BY_TOKEN

    def build(self, site: LayerSite) -> FfnLayer:
        return NoFfnLayer()

    def cost(self, d_model: int) -> PartCost:
        return PartCost(0)


class NoFfnLayer(FfnLayer):
    """x: (B, T, D) → zeros: (B, T, D)."""

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        return torch.zeros_like(x)
