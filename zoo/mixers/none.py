"""No mixer."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from zoo.caching.cache import LayerCache
from zoo.caching.states import StateCache
from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.mixers import Mixer, MixerLayer
from zoo.site import ForwardPass, LayerSite, PartCost


class NoMixer(Mixer):
    """No mixer, residual or norm before the FFN, as in Nemotron-H (NVIDIA 2025, arXiv:2504.03624), where mixers and
    FFNs are separate layers."""

    absent: ClassVar[bool] = True
    kind: Literal["none"] = "none"
    supports: ClassVar[Operations] = BY_TOKEN

    def build(self, site: LayerSite) -> MixerLayer:
        return NoMixerLayer()

    def cost(self, d_model: int, context: int) -> PartCost:
        return PartCost(0)

    def cache_elements(self, capacity: int) -> int:
        return 0

    def check_ahead(self) -> None:
        """Never raises: no information moves between tokens."""


class NoMixerLayer(MixerLayer):
    """x: (B, T, D) → zero."""

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        return torch.zeros_like(x)

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        return StateCache({})
