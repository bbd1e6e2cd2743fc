"""RWKV-7."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import SHIFT, TokenShift, mixed, on_text
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._delta import DPLRCost, dplr_scan
from zoo.mixers._heads import NormPerHead, first_values, split
from zoo.mixers._linear import LowRank, Stateful, StatefulLayer, sizes_in
from zoo.mixers._scan import STATE
from zoo.norms import Norm
from zoo.norms.layernorm import LayerNorm
from zoo.settings.axis import Choice, Examples, number
from zoo.settings.field_tags import Features, HeadFeatures, Heads
from zoo.site import ForwardPass, LayerSite

READERS = {"r": 0.2, "w": 0.9, "k": 0.7, "v": 0.7, "a": 0.9, "g": 0.2}
"""Projections, each of which mixes a token with the previous one, and the exponent of its initial μ (see `_shares`)."""


class RWKV7(Stateful):
    """S_t = S_{t−1} (diag(w_t) − κ̂_tᵀ (a_t ⊙ κ̂_t)) + v_tᵀ k̃_t, out = W_o ((norm(S_t r_tᵀ) + (r_t · ρ ⊙ k̃_t) v_t) ⊙
    g_t), with row vectors. Peng et al. 2025 (Goose), arXiv:2503.14456.

    Each of r, k, v and of the low-rank w, a, g reads x_t + (x_{t−1} − x_t) ⊙ μ with its own μ. w = exp(−e^(−1/2) σ(w₀ +
    tanh(x A) B)); a = σ(a₀ + x A B), the rate at which a key is erased; κ̂ = k ⊙ ξ, normalised to length 1;
    k̃ = k ⊙ (1 + (a − 1) ⊙ α); g = σ(x A) B. Values are mixed with the first layer's: v + (v₁ − v) ⊙ σ(v₀ + x A B). In
    the first layer this changes nothing, but A, B and v₀ exist there and count, so that all layers are alike; the
    paper's sizes leave out these 2 D r + D parameters (49,920 at 0.19B). Null ranks have the ratio to d_model that they
    have in the paper at 768.
    """

    examples: ClassVar[Examples] = ({"chunk": 8, "decay_rank": 3, "rate_rank": 3, "value_rank": 2, "gate_rank": 5},)
    kind: Literal["rwkv7"] = "rwkv7"
    supports: ClassVar[Operations] = OF_MODULES
    heads: Heads = 4
    """H: number of heads, of d_model / heads features each."""
    head_dim: HeadFeatures | None = None
    """Features of a head; null for d_model / heads, the only allowed value."""
    decay_rank: Features | None = None
    """Rank of A and B for the decay w; null for d_model / 12, at least 8."""
    rate_rank: Features | None = None
    """Rank of A and B for the erasure rate a; null for d_model / 12, at least 8."""
    value_rank: Features | None = None
    """Rank of A and B for the share of the first layer's values; null for d_model / 24, at least 8."""
    gate_rank: Features | None = None
    """Rank of A and B for the gate g; null for d_model / 6, at least 8."""
    head_norm: Annotated[Norm, Choice("zoo.norms")] = LayerNorm(eps=64e-5)
    """Norm of each head's output S_t r_tᵀ, with its own gains."""

    def resolve(self, d_model: int) -> Self:
        return self.model_copy(
            update=sizes_in(self, d_model, {"decay_rank": 12, "rate_rank": 12, "value_rank": 24, "gate_rank": 6})
        )

    def sizes(self) -> tuple[int, tuple[int, int, int, int]]:
        """Features of a head and the four ranks, of a resolved spec."""
        ranks = number(self.decay_rank), number(self.rate_rank), number(self.value_rank), number(self.gate_rank)
        return number(self.head_dim), ranks

    def build(self, site: LayerSite) -> MixerLayer:
        return RWKV7Layer(self, site)

    def matrices(self, d_model: int) -> int:
        return 4 * d_model**2 + 2 * d_model * sum(self.sizes()[1])

    def vectors(self, d_model: int) -> int:
        """Number of parameters of μ; w₀, a₀ and v₀; ξ, α and ρ; and the norm."""
        norm = self.heads * self.head_norm.parameters(self.sizes()[0])
        return (len(READERS) + 3 + 3) * d_model + norm

    def scanning(self) -> DPLRCost:
        head_dim, _ = self.sizes()
        return DPLRCost(self.heads, head_dim, self.heads, head_dim, self.chunk, channels=True)

    def states(self) -> Mapping[str, tuple[int, ...]]:
        head_dim, _ = self.sizes()
        return {STATE: (self.heads, head_dim, head_dim), SHIFT: (self.heads * head_dim,)}

    @property
    def shared_values(self) -> tuple[int, int]:
        return self.heads, self.sizes()[0]


class RWKV7Layer(StatefulLayer):
    """x: (B, T, D) → (B, T, D)."""

    roles: ClassVar = {"shares": "gain", "erased": "gain", "kept": "gain", "bonus": "bias"}

    def __init__(self, spec: RWKV7, site: LayerSite) -> None:
        super().__init__(spec)
        self.heads, self.chunk, d_model = spec.heads, spec.chunk, site.d_model
        head_dim, (decay_rank, rate_rank, value_rank, gate_rank) = spec.sizes()
        self.shift = TokenShift(d_model)
        self.shares = nn.Parameter(_shares(site))
        """μ."""
        self.r, self.k = (Linear(d_model, d_model, role="input") for _ in range(2))
        self.v = Linear(d_model, d_model, role="input", values=True)
        self.decay = LowRank(d_model, decay_rank, d_model, bias=True, between=torch.tanh)
        self.rate = LowRank(d_model, rate_rank, d_model, bias=True)
        self.value_mix = LowRank(d_model, value_rank, d_model, bias=True)
        self.gate = LowRank(d_model, gate_rank, d_model, between=torch.sigmoid)
        self.erased, self.kept = (nn.Parameter(torch.ones(d_model)) for _ in range(2))
        """ξ and α."""
        self.bonus = nn.Parameter(torch.zeros(spec.heads, head_dim))
        """ρ."""
        self.head_norm = NormPerHead(spec.head_norm, spec.heads, head_dim)
        self.o = Linear(d_model, d_model, role="output")
        self.initial = {"shares": _shares(site), "erased": 0.71, "kept": 1.02, "bonus": -0.04}
        # w₀ as in the authors' code, without its zigzag within heads, slowest features first: −5.5 + 6 (i/(D − 1))^(1 +
        # (l/(L − 1))^0.3)
        features = torch.linspace(0, 1, d_model, dtype=torch.float64)
        depth = min(1.0, site.layer / max(1, site.n_layers - 1))
        decays = (-5.5 + 6 * features ** (1 + depth**0.3)).float()
        for read, bias in ((self.decay, decays), (self.rate, -0.19), (self.value_mix, 0.73)):
            up: Any = read.up
            up.init_gain, up.initial = 0.0, {"bias": bias}

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        before = self.shift(x, step, cache)
        for_r, for_w, for_k, for_v, for_a, for_g = (mixed(x, before, share) for share in self.shares.unbind())
        r, k, v = self.r(for_r), on_text(self.k(for_k), step), split(self.v(for_v), self.heads)
        v = mixed(v, first_values(v, step), split(self.value_mix(for_v).sigmoid(), self.heads))  # (B, H, T, d)
        rate = self.rate(for_a).sigmoid()
        decay = -math.exp(-0.5) * self.decay(for_w).sigmoid()
        key = F.normalize(split(k * self.erased, self.heads), dim=-1)
        k, r, rate = (split(part, self.heads) for part in (k * (1 + (rate - 1) * self.kept), r, rate))
        state = dplr_scan(r, k, v, key, key * rate, split(decay, self.heads), self.chunk, cache).to(v.dtype)
        own = (r * k * self.bonus[:, None]).sum(-1, keepdim=True) * v
        heads = (self.head_norm(state) + own).transpose(1, 2).flatten(2)
        return self.o(heads * self.gate(for_g))


def _shares(site: LayerSite) -> Tensor:
    """Initial μ in the authors' code: 1 − (i/D)^(c (1 − l/L)) for feature i in layer l: (readers, D)."""
    features = torch.arange(site.d_model, dtype=torch.float64) / site.d_model
    late = 1 - min(site.layer, site.n_layers - 1) / site.n_layers
    return torch.stack([1 - features ** (power * late) for power in READERS.values()]).float()
