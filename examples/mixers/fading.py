"""Linear attention that forgets."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.building_blocks import (
    Examples,
    ForwardPass,
    LayerCache,
    LayerSite,
    LinearHeads,
    LinearHeadsLayer,
    MixerLayer,
    on_text,
    scan,
)


class Fading(LinearHeads):
    """S_t = σ(a) S_{t−1} + k_t v_tᵀ, out = W_o S_tᵀ q_t/√n, a learned for each head."""

    examples: ClassVar[Examples] = ({"chunk": 8},)
    kind: Literal["fading"] = "fading"

    def build(self, site: LayerSite) -> MixerLayer:
        return FadingLayer(self, site.d_model)

    def vectors(self, d_model: int) -> int:
        return self.heads


class FadingLayer(LinearHeadsLayer):
    """x: (B, T, D) → (B, T, D)."""

    roles: ClassVar = {"keep": "bias"}
    initial: ClassVar = {"keep": 3.0}

    def __init__(self, spec: Fading, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.chunk, self.scale = spec.chunk, spec.key_features**-0.5
        self.keep = nn.Parameter(torch.zeros(spec.heads))

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v = self.project(x, step, cache)  # (B, H, T, n) each
        k = on_text(k.transpose(1, 2), step).transpose(1, 2)  # padding adds nothing to the state
        decay = F.logsigmoid(self.keep.float())[None, :, None]
        mixed = scan(q * self.scale, k, v, decay, self.chunk, cache).to(v.dtype)
        out: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return out
