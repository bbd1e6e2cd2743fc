"""Differential attention."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.attend import attend
from zoo.attending.visible import Scoring, Visible
from zoo.compatibility.traits import BY_TOKEN, Operations
from zoo.errors import SpecError
from zoo.mixers import MixerLayer
from zoo.mixers._multi_head import MultiHead
from zoo.mixers.attention import AttentionLayer
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.settings.axis import Choice, Examples
from zoo.site import ForwardPass, LayerSite


class Differential(MultiHead):
    """head = (1 − λ_init) · norm((softmax(q₁k₁ᵀ/√d) − λ softmax(q₂k₂ᵀ/√d)) v). Ye et al. 2024, arXiv:2410.05258.

    q₁, q₂, k₁, k₂: d features, v: 2d. λ = exp(λ_q1·λ_k1) − exp(λ_q2·λ_k2) + λ_init, its vectors (d) shared by the heads
    of a layer; λ_init = 0.8 − 0.6 exp(−0.3 l) in layer l, counted from 0. `norm` is over each head by itself.

    With fewer `kv_heads` the pairs of a group share a pair of keys: q₁ reads k₁ and q₂ reads k₂, as in the authors'
    code for FlashAttention and in DiffLlama. Their plain code repeats single keys, so that both queries of a pair read
    one of them; the paper has as many pairs of keys as of queries, where the two are the same.

    `heads` and `kv_heads` count pairs: H = 4 has 8 query heads of d features, and d_model / (2 H) of them by default,
    so that the projections are as large as those of attention with 2 H heads. Queries and keys are projected with all
    first members of the pairs before all second ones.
    """

    examples: ClassVar[Examples] = ({"head_dim": 6},)
    kind: Literal["differential"] = "differential"
    supports: ClassVar[Operations] = BY_TOKEN
    head_norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm(eps=1e-5)
    """Norm of each pair's output, 2d features, before the factor 1 − λ_init."""

    def _default_head_dim(self, d_model: int) -> int:
        if d_model % (2 * self.heads):
            reason = f"{self.heads} pairs of heads do not divide d_model {d_model}; set head_dim to choose it freely"
            raise SpecError("heads", reason)
        return d_model // (2 * self.heads)

    def sizes(self) -> tuple[int, int, int]:
        """(2H, 2K, d): projections and cache count single heads, two per pair."""
        heads, kv_heads, head_dim = super().sizes()
        return 2 * heads, 2 * kv_heads, head_dim

    def outputs(self) -> tuple[int, int]:
        _, _, head_dim = self.sizes()
        return self.heads, 2 * head_dim

    def build(self, site: LayerSite) -> MixerLayer:
        return DifferentialLayer(self, site)

    def _norm_parameters(self) -> int:
        """Parameters of all norms and of λ."""
        _, _, head_dim = self.sizes()
        return super()._norm_parameters() + self.head_norm.parameters(2 * head_dim) + 4 * head_dim

    def _flops_per_key(self) -> float:
        """FLOPs of a score of d features and a weighted value of 2d, for both maps of each pair."""
        heads, _, head_dim = self.sizes()
        return 2.0 * heads * head_dim + 2.0 * heads * 2 * head_dim


class DifferentialLayer(AttentionLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: Differential, site: LayerSite) -> None:
        super().__init__(spec, site.d_model)
        self.mixing = Lambda(self.head_dim, site.layer)
        self.head_norm = spec.head_norm.build(2 * self.head_dim)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
        """q: (B, 2H, T, d), k and v: (B, 2K, S, d) → (B, H, T, 2d)."""
        v = v.unflatten(1, (-1, 2)).transpose(2, 3).flatten(3)
        first, second = attend(q, k, torch.cat((v, v), dim=1), visible, scoring).chunk(2, dim=1)
        mixed = self.head_norm(first - self.mixing().to(second.dtype) * second)
        out: Tensor = mixed * (1 - self.mixing.start)
        return out

    def _scoring(self, q: Tensor, step: ForwardPass, k_places: Tensor) -> Scoring:
        """Scoring with the same bias for both maps of a pair."""
        scoring = super()._scoring(q, step, k_places)
        if scoring.bias is None:
            return scoring
        return dataclasses.replace(scoring, bias=torch.cat((scoring.bias, scoring.bias), dim=-3))


class Lambda(nn.Module):
    """() → λ, a scalar."""

    roles: ClassVar = {"vectors": "bias"}
    initial_std: ClassVar = {"vectors": 0.1}

    def __init__(self, head_dim: int, layer: int) -> None:
        super().__init__()
        self.start = 0.8 - 0.6 * math.exp(-0.3 * layer)
        # λ_q1, λ_k1, λ_q2, λ_k2.
        self.vectors = nn.Parameter(torch.zeros(4, head_dim))

    def forward(self) -> Tensor:
        q1, k1, q2, k2 = self.vectors.float()
        # Sums of products rather than matrix products, which autocast would round.
        out: Tensor = (q1 * k1).sum().exp() - (q2 * k2).sum().exp() + self.start
        return out
