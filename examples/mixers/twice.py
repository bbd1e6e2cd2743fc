"""A delta rule with two steps per token."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional as F

from zoo.building_blocks import (
    DeltaCost,
    Examples,
    ForwardPass,
    LayerCache,
    LayerSite,
    Linear,
    LinearHeads,
    MixerLayer,
    ShortConv,
    StatefulLayer,
    on_text,
    product_scan,
    split,
    unit,
)

STEPS = 2


class Twice(LinearHeads):
    """For each of two k, v and β of a token: S ← S + β k (v − Sᵀ k)ᵀ; then out = W_o Sᵀ q. |q| = |k| = 1, β = σ(W_β x).
    Siems et al. 2025 (DeltaProduct), arXiv:2502.10297."""

    examples: ClassVar[Examples] = ({}, {"conv": None})
    kind: Literal["twice"] = "twice"
    conv: PositiveInt | None = 4
    """Tokens that the convolution of queries, keys and values sees; null for none."""

    @property
    def channels(self) -> int:
        return self.heads * (self.key_features + STEPS * (self.key_features + self.value_features))

    def build(self, site: LayerSite) -> MixerLayer:
        return TwiceLayer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        strengths, out = STEPS * self.heads, self.heads * self.value_features
        return d_model * (self.channels + strengths + out)

    def scanning(self) -> DeltaCost:
        return DeltaCost(self.heads, self.key_features, self.heads, self.value_features, self.chunk, rank=STEPS)


class TwiceLayer(StatefulLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: Twice, d_model: int) -> None:
        super().__init__(spec)
        keys, values = spec.heads * spec.key_features, spec.heads * spec.value_features
        self.heads, self.chunk, self.widths = spec.heads, spec.chunk, (keys, STEPS * keys, STEPS * values)
        self.q = Linear(d_model, keys, role="input")
        self.k = Linear(d_model, STEPS * keys, role="input")
        self.v = Linear(d_model, STEPS * values, role="input", values=True)
        self.strength = Linear(d_model, STEPS * spec.heads, role="input")
        self.o = Linear(values, d_model, role="output")
        self.conv = ShortConv(spec.channels, spec.conv) if spec.conv else None

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.conv is not None:
            q, k, v = F.silu(self.conv(torch.cat((q, k, v), -1), step, cache)).split(self.widths, -1)
        strength = on_text(self.strength(x).sigmoid(), step)  # padding corrects nothing
        q, k, v = unit(split(q, self.heads)), unit(self._rows(k)), self._rows(v)  # (B, H, T, n), (B, H, 2T, n or p)
        decay = torch.zeros_like(q[..., 0])  # (B, H, T)
        mixed = product_scan(q, k, v, decay, self._rows(strength)[..., 0], self.chunk, cache).to(x.dtype)
        out: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return out

    def _rows(self, x: Tensor) -> Tensor:
        """(B, T, 2·H·f), step after step → (B, H, 2T, f), the two rows of a token next to each other."""
        rows: Tensor = x.unflatten(-1, (STEPS, self.heads, -1)).flatten(1, 2).transpose(1, 2)
        return rows
