"""Short causal depthwise convolutions."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.states import StateCache
from zoo.site import ForwardPass, PartCost

CONV = "conv"
"""Name, in a layer's cache, of the last inputs, which the convolution of the next tokens reads."""


def conv_cost(channels: int, width: int | None, bias: bool = False) -> PartCost:
    """Cost of a `ShortConv`; zero if `width` is None."""
    if width is None:
        return PartCost(0)
    return PartCost.of(channels * (width + bias), 2.0 * channels * width)


class ShortConv(nn.Module):
    """y_t = Σ_i w_i ⊙ x_{t − (W − 1 − i) δ} (+ b), i from 0 to W − 1; x is zero before the text. x: (B, T, C).

    So et al. 2021 (Primer), arXiv:2109.08668, on queries, keys and values. W is small, so the sum is computed as W
    elementwise products, which need no change of layout, instead of a convolution.
    """

    roles: ClassVar = {"weight": "gain", "bias": "bias"}

    def __init__(self, channels: int, width: int, bias: bool = False, dilation: int = 1, name: str = CONV) -> None:
        """dilation: δ, distance in tokens between inputs. name: of the last inputs in the cache."""
        super().__init__()
        self.name = name
        self.reach = (width - 1) * dilation
        """Number of tokens before the current one that the convolution spans."""
        self.dilation = dilation
        self.weight = nn.Parameter(torch.empty(channels, width))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
        self.initial_std = {"weight": width**-0.5}

    def new_cache(self, batch: int, dtype: torch.dtype) -> StateCache:
        """Cache of a convolution that shares no other part's cache."""
        shape = {self.name: (self.reach, self.weight.shape[0])}
        return StateCache.zeros(batch, shape, self.weight, dtype)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        x = on_text(x, step)
        length = x.shape[1]
        states = kept_by(self, cache, StateCache)
        before = states.read(self.name, x.dtype) if states is not None else None
        x = F.pad(x, (0, 0, self.reach, 0)) if before is None else torch.cat((before, x), dim=1)
        if states is not None:
            states.write(self.name, x[:, length:])
        starts = range(0, self.reach + 1, self.dilation)
        taps = [x[:, i : i + length] * weight for i, weight in zip(starts, self.weight.unbind(1), strict=True)]
        out = torch.stack(taps).sum(0) if self.bias is None else torch.stack(taps).sum(0) + self.bias
        return out.to(x.dtype)


def on_text(x: Tensor, step: ForwardPass) -> Tensor:
    """x: (B, T, …) with padding set to zero."""
    text = step.text
    return x if text is None else x.masked_fill(~text.view(*text.shape, *[1] * (x.dim() - 2)), 0.0)


# Token shift: each token's predecessor.

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
