"""Token shift: each token's predecessor."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.states import StateCache
from zoo.conv import on_text
from zoo.site import ForwardPass

SHIFT = "shift"
"""Name, in a layer's cache, of the last token read."""


class TokenShift(nn.Module):
    """x_t → x_{t−1}, zero where the text begins. x: (B, T, D). Peng et al. 2023 (RWKV), arXiv:2305.13048."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def new_cache(self, batch: int, like: Tensor, dtype: torch.dtype) -> StateCache:
        """Cache of a layer that keeps no other state, on the device of `like`."""
        return StateCache.zeros(batch, {SHIFT: (self.d_model,)}, like, dtype)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        x = on_text(x, step)
        states = kept_by(self, cache, StateCache)
        before = states.read(SHIFT, x.dtype) if states is not None else None
        shifted = F.pad(x, (0, 0, 1, -1))
        if before is not None:
            shifted = torch.cat((before[:, None], shifted[:, 1:]), dim=1)
        if states is not None:
            states.write(SHIFT, x[:, -1])  # after the concatenation: `before` may share the state's memory
        return shifted


def mixed(x: Tensor, before: Tensor, share: Tensor) -> Tensor:
    """x + (x_{t−1} − x) ⊙ μ, with `before` for x_{t−1} and `share` for μ."""
    return x + (before - x) * share
