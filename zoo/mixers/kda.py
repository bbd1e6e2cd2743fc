"""Kimi Delta Attention."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, NegativeFloat, PositiveInt
from torch import Tensor, nn

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import ShortConv, on_text
from zoo.ffns._activations import UNGATED, PlainActivation
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._decay import ChannelDecay
from zoo.mixers._delta import DeltaCost, delta_scan
from zoo.mixers._heads import split
from zoo.mixers._linear import LinearHeads, LowRank, StatefulLayer, unit
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.projections import project_all
from zoo.settings.axis import Choice, Examples, is_off
from zoo.site import ForwardPass, LayerSite


class KimiDeltaAttention(LinearHeads):
    """S_t = (I − β_t k_t k_tᵀ) diag(α_t) S_{t−1} + β_t k_t v_tᵀ, out = W_o (norm(S_tᵀ q_t/√n) ⊙ σ(W_g x)): Gated
    DeltaNet with one decay α per key feature. Kimi Team 2025, arXiv:2510.26692.

    q, k, v = silu(conv(W x)), n features of a head each, q and k normalised to length 1. β = σ(W_b x), one number per
    head. α = exp(−A softplus(W_α x + b)), A one number per head and b one per feature. W_α and W_g have rank n. The
    norm is over each head, with one gain for all. Ling 3.0 (2026) has full-rank W_α and W_g, and a floor for log α:
    floor · σ(A (W_α x + b)).
    """

    examples: ClassVar[Examples] = (
        {"chunk": 8, "head_dim": 5},
        {"chunk": 4, "head_dim": 5, "negative_eigenvalues": True, "conv": None},
    )
    paired_examples: ClassVar[int | None] = 1
    kind: Literal["kda"] = "kda"
    supports: ClassVar[Operations] = OF_MODULES
    negative_eigenvalues: bool = False
    """Whether β = 2σ(W_b x), so that I − β k kᵀ has an eigenvalue in (−1, 1) instead of (0, 1) (Grazzi et al. 2024,
    arXiv:2411.12537)."""
    conv: PositiveInt | None = 4
    """Tokens in the window of the convolution of queries, keys and values; null for no convolution."""
    activation: PlainActivation = Field(default="silu", exclude_if=lambda name: name == "silu")
    """Activation after the convolution."""
    low_rank: bool = True
    """Whether W_α and W_g have rank n; full rank otherwise."""
    decay_floor: NegativeFloat | None = Field(default=None, exclude_if=is_off)
    """Lower bound of log α; null for the softplus form, which has none."""
    head_norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm(eps=1e-5)
    """Norm of each head's output, before the gate σ(W_g x)."""

    @property
    def inner(self) -> int:
        """Features of all heads."""
        return self.heads * self.key_features

    def build(self, site: LayerSite) -> MixerLayer:
        return KimiDeltaAttentionLayer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        read = self.key_features * (d_model + self.inner) if self.low_rank else d_model * self.inner
        return 4 * d_model * self.inner + d_model * self.heads + 2 * read

    def vectors(self, d_model: int) -> int:
        return self.heads + self.inner + self.head_norm.parameters(self.key_features)

    def scanning(self) -> DeltaCost:
        n = self.key_features
        return DeltaCost(self.heads, n, self.heads, n, self.chunk, channels=True)


class KimiDeltaAttentionLayer(StatefulLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: KimiDeltaAttention, d_model: int) -> None:
        super().__init__(spec)
        self.heads, self.chunk, self.scale = spec.heads, spec.chunk, spec.key_features**-0.5
        self.q, self.k = (Linear(d_model, spec.inner, role="input") for _ in range(2))
        self.v = Linear(d_model, spec.inner, role="input", values=True)
        self.strength = Linear(d_model, spec.heads, role="input")
        self.forget, self.gate = (_reading(spec, d_model) for _ in range(2))
        self.strongest = 1 + spec.negative_eigenvalues
        self.conv = ShortConv(spec.channels, spec.conv) if spec.conv else None
        self.activation = UNGATED[spec.activation]
        self.decay = ChannelDecay(spec.heads, spec.key_features, spec.decay_floor)
        self.head_norm = spec.head_norm.build(spec.key_features)
        self.o = Linear(spec.inner, d_model, role="output")

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        joined = torch.cat(project_all(x, self.q, self.k, self.v), dim=-1)
        q, k, v = self.activation(joined if self.conv is None else self.conv(joined, step, cache)).chunk(3, dim=-1)
        q, k = (unit(split(part, self.heads)) for part in (q, on_text(k, step)))
        strength = self.strength(x).sigmoid().transpose(1, 2) * self.strongest
        decay = self.decay(self.forget(x))
        mixed = delta_scan(q * self.scale, k, split(v, self.heads), decay, strength, self.chunk, cache).to(v.dtype)
        heads = self.head_norm(mixed) * split(self.gate(x), self.heads).sigmoid()
        return self.o(heads.transpose(1, 2).flatten(2))


def _reading(spec: KimiDeltaAttention, d_model: int) -> nn.Module:
    """(B, T, D) → (B, T, H·n)."""
    if spec.low_rank:
        return LowRank(d_model, spec.key_features, spec.inner)
    return Linear(d_model, spec.inner, role="input")
