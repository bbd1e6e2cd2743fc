"""Gated linear attention."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import on_text
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._heads import split
from zoo.mixers._linear import HalfKeys, LinearHeadsLayer, LowRank
from zoo.mixers._scan import ScanCost, scan
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.settings.axis import Choice, Examples
from zoo.settings.field_tags import Features
from zoo.site import ForwardPass, LayerSite


class GatedLinearAttention(HalfKeys):
    """S_t = diag(α_t) S_{t−1} + k_t v_tᵀ, out = W_o (norm(S_tᵀ q_t/√n) ⊙ silu(W_r x)), with one decay per key feature,
    α = σ(W₂W₁x + b)^(1/τ). Yang et al. 2023 (GLA), arXiv:2312.06635 §4.4.

    q, k: n = D/2H features of a head, v: D/H; W₁: (16, D), τ = 16. The norm is over each head, with one gain for all:
    RMSNorm as in the authors' code, where the paper has LayerNorm.
    """

    examples: ClassVar[Examples] = ({"chunk": 8, "head_dim": 5, "rank": 3},)
    kind: Literal["gla"] = "gla"
    supports: ClassVar[Operations] = OF_MODULES
    rank: Features = 16
    """Rank of the decay's projection W₂W₁."""
    decay_temperature: PositiveFloat = 16.0
    """τ: larger values make the state decay more slowly."""
    head_norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm(eps=1e-5)
    """Norm of each head's output, before the gate silu(W_r x)."""

    def build(self, site: LayerSite) -> MixerLayer:
        return GatedLinearAttentionLayer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        keys, values = self.heads * self.key_features, self.heads * self.value_features
        return super().matrices(d_model) + d_model * values + self.rank * (d_model + keys)

    def vectors(self, d_model: int) -> int:
        return self.heads * self.key_features + self.head_norm.parameters(self.value_features)

    def scanning(self) -> ScanCost:
        return ScanCost(self.heads, self.key_features, self.heads, self.value_features, self.chunk, channels=True)


class GatedLinearAttentionLayer(LinearHeadsLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: GatedLinearAttention, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.chunk, self.scale, self.temperature = spec.chunk, spec.key_features**-0.5, spec.decay_temperature
        self.forget = LowRank(d_model, spec.rank, spec.heads * spec.key_features, bias=True)
        self.gate = Linear(d_model, spec.heads * spec.value_features, role="input")
        self.head_norm = spec.head_norm.build(spec.value_features)

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v = self.project(x, step, cache)
        k = on_text(k.transpose(1, 2), step).transpose(1, 2)
        raw = split(self.forget(x), self.heads)
        decay = F.logsigmoid(raw.to(torch.promote_types(raw.dtype, torch.float32))) / self.temperature  # log α
        mixed = scan(q * self.scale, k, v, decay, self.chunk, cache).to(v.dtype)
        heads = self.head_norm(mixed) * F.silu(split(self.gate(x), self.heads))
        return self.o(heads.transpose(1, 2).flatten(2))
