"""The neural memory of Titans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import STATE as CONV
from zoo.conv import on_text
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._linear import LinearHeads, LinearHeadsLayer, split, unit
from zoo.mixers._momentum import MomentumCost, momentum_scan
from zoo.mixers._scan import STATE
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.settings.axis import Choice, Examples
from zoo.site import ForwardPass, LayerSite

REMEMBERS = -4.0
"""Where the bias of forgetting starts: a token then forgets 2 %."""


class Titans(LinearHeads):
    """M_t = (1 − α_t) M_{t−1} + S_t, S_t = η_t S_{t−1} − θ_t ∇ℓ(M_{t−1}; x_t), ℓ = ½ ‖Mᵀ k_t − v_t‖²: a memory that
    learns from its surprise, with momentum. Behrouz et al. 2024 (Titans), arXiv:2501.00663, eq. 12–15.

    out = W_o (norm(M_tᵀ q_t) ⊙ silu(W_g x)). q, k, v = silu(conv(W x)), q and k of length 1; α, η and θ = σ(w x), one
    number per head. This is the paper's long-term memory by itself, with a memory of one matrix (n, n) for each head
    that starts from zero; the paper also has memories that are deep networks, attention beside the memory, and
    gradients of mini-batches, all taken at the memory before the first of their tokens. Here each is taken at M_{t−1},
    as the equations have it, and `chunk` changes no result.
    """

    examples: ClassVar[Examples] = ({"chunk": 8, "head_dim": 5, "conv": None},)
    kind: Literal["titans"] = "titans"
    supports: ClassVar[Operations] = OF_MODULES
    conv: PositiveInt | None = 4
    head_norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm()
    """Norm of each head's output M_tᵀ q_t, before the gate silu(W_g x)."""

    def build(self, site: LayerSite) -> MixerLayer:
        return TitansLayer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        return super().matrices(d_model) + d_model * self.heads * (self.value_features + 3)

    def vectors(self, d_model: int) -> int:
        return self.heads + self.head_norm.parameters(self.value_features)

    def scanning(self) -> MomentumCost:
        return MomentumCost(self.heads, self.key_features, self.heads, self.value_features, self.chunk)

    def states(self) -> Mapping[str, tuple[int, ...]]:
        shapes = {STATE: (self.heads, 2 * self.key_features, self.value_features)}
        return shapes if self.conv is None else {**shapes, CONV: (self.conv - 1, self.channels)}


class TitansLayer(LinearHeadsLayer):
    """x: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: Titans, d_model: int) -> None:
        super().__init__(spec, d_model)
        self.chunk = spec.chunk
        self.gate = Linear(d_model, spec.heads * spec.value_features, role="input")
        self.forget, self.momentum, self.rate = (Linear(d_model, spec.heads, role="input") for _ in range(3))
        self.forget_bias = nn.Parameter(torch.full((spec.heads,), REMEMBERS))
        self.head_norm = spec.head_norm.build(spec.value_features)
        self.roles = {"forget_bias": "bias"}
        self.initial = {"forget_bias": REMEMBERS}

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        q, k, v = (F.silu(part) for part in self.project(x, step, cache))
        k = on_text(k.transpose(1, 2), step).transpose(1, 2)
        # log(1 − σ(z)) = log σ(−z)
        keep = F.logsigmoid(-(self.forget(x) + self.forget_bias)).transpose(1, 2)
        momentum, rate = F.logsigmoid(self.momentum(x)).transpose(1, 2), self.rate(x).sigmoid().transpose(1, 2)
        mixed = momentum_scan(unit(q), unit(k), v, keep, momentum, rate, self.chunk, cache).to(v.dtype)
        heads = self.head_norm(mixed) * F.silu(split(self.gate(x), self.heads))
        out: Tensor = self.o(heads.transpose(1, 2).flatten(2))
        return out
