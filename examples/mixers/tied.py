"""Attention whose keys are its values."""

from __future__ import annotations

from typing import Literal, Self

import torch
from torch import Tensor

from zoo.building_blocks import (
    ForwardPass,
    HeadFeatures,
    Heads,
    Keys,
    LayerCache,
    LayerSite,
    Linear,
    Mixer,
    MixerLayer,
    PartCost,
    Scoring,
    TokenCache,
    Visible,
    attend,
    attention_cost,
    check_width,
    kept_by,
    mean_keys,
    number,
    split,
)


class TiedAttention(Mixer):
    """out = W_o softmax(QKᵀ/√d + mask) K, without positions."""

    kind: Literal["tied"] = "tied"
    heads: Heads = 4
    """H: number of heads."""
    head_dim: HeadFeatures | None = None
    """d; null for d_model / heads."""

    def resolve(self, d_model: int) -> Self:
        if self.head_dim is None:
            check_width(self.heads, d_model, "head_dim")
        return self.model_copy(update={"head_dim": self.head_dim or d_model // self.heads})

    def build(self, site: LayerSite) -> MixerLayer:
        return TiedLayer(self, site.d_model)

    def cost(self, d_model: int, context: int) -> PartCost:
        features = self.heads * number(self.head_dim)
        matrices = 3 * d_model * features
        # Of each key a score and a weighted value; kernels compute whole squares, of which the mask lets half through.
        return attention_cost(matrices, matrices, 4.0 * features, Keys(mean_keys(context), context, context))

    def cached(self) -> tuple[tuple[int, int], ...]:
        return ((self.heads, number(self.head_dim)),)

    def cache_elements(self, capacity: int) -> int:
        return self.heads * number(self.head_dim) * capacity


class TiedLayer(MixerLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: TiedAttention, d_model: int) -> None:
        super().__init__()
        self.spec, features = spec, spec.heads * number(spec.head_dim)
        self.q = Linear(d_model, features, role="input")
        self.k = Linear(d_model, features, role="input", values=True)
        self.o = Linear(features, d_model, role="output")

    def new_cache(self, batch: int, capacity: int, dtype: torch.dtype) -> LayerCache:
        return TokenCache.empty(batch, capacity, self.spec.cached(), self.o.weight, dtype)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k = (split(part, self.spec.heads) for part in (self.q(x), self.k(x)))  # (B, H, T, d)
        tokens, places = kept_by(self, cache, TokenCache), step.index
        if tokens is not None:
            (k,), places = tokens.extend((k,), step.index)  # those of all tokens so far: (B, H, S, d)
        scoring = Scoring(number(self.spec.head_dim) ** -0.5, tap=step.tap)
        heads = attend(q, k, k, Visible.to(step, places), scoring)
        out: Tensor = self.o(heads.transpose(1, 2).flatten(2))
        return out
