"""The neural memory of Titans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.caching.cache import LayerCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import CONV, on_text
from zoo.init import Linear
from zoo.mixers import MixerLayer
from zoo.mixers._decay import pairwise
from zoo.mixers._delta import inversion_flops, unit_inverse
from zoo.mixers._heads import split
from zoo.mixers._linear import LinearHeads, LinearHeadsLayer, unit
from zoo.mixers._scan import STATE, ScanChunks, ScanCost, stepwise
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.settings.axis import Choice, Examples
from zoo.site import ForwardPass, LayerSite


@dataclass(frozen=True)
class MomentumCost(ScanCost):
    """FLOPs of `momentum_scan`."""

    @property
    def halves(self) -> bool:
        return True

    @property
    def token(self) -> float:
        """FLOPs per token of the prediction, the update and the read."""
        return 6.0 * self.state

    def computed(self, length: int) -> float:
        chunks = ScanChunks.of(length, self.chunk)
        width = chunks.width
        # q kᵀ and its product with values; if a chunk has several tokens, also k kᵀ and the inverse times values
        scored = 2.0 * (self.key_features + self.features) * width**2
        inside = (scored if width == 1 else 2 * scored) + 2.0 * width**3 + inversion_flops(width)
        return chunks.count * self.heads * inside + 12.0 * self.state * width * (chunks.count - 1)


def momentum_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor,
    momentum: Tensor,
    rate: Tensor,
    chunk: int,
    cache: LayerCache | None = None,
) -> Tensor:
    """o_t = M_tᵀ q_t, M_t = a_t M_{t−1} + S_t, S_t = η_t S_{t−1} + θ_t k_t (v_t − M_{t−1}ᵀ k_t)ᵀ, from the cached state
    (M stacked on S) or zero.

    q, k: (B, H, T, n), v: (B, H, T, p), keep log a ≤ 0, momentum log η ≤ 0 and rate θ: (B, H, T) → (B, H, T, p).
    `chunk` is a power of two. Computed in float32 or wider.

    Let Π_{s→t} a be the product of a after token s up to t. Within a chunk that begins with M and S, token s adds
    u_s = θ_s k_s e_sᵀ to S, with e_s = v_s − M_{s−1}ᵀ k_s, so that

    (1) M_t = A_t M + B_t S + Σ_{s≤t} C_ts u_s, with A_t = Π_{0→t} a, B_t = Σ_{r≤t} Π_{r→t} a Π_{0→r} η and
        C_ts = Σ_{s≤r≤t} Π_{r→t} a Π_{s→r} η, a product of two triangular matrices
    (2) (I + L) E = V − (A_{t−1} ⊙ K) M − (B_{t−1} ⊙ K) S, with L_ts = C_{t−1,s} θ_s k_t·k_s for s < t, as in
        `delta_scan`
    """
    # The column of ones becomes zero in the last chunk's padding, where momentum must not move the memory.
    gates = torch.stack((keep, momentum, rate, torch.ones_like(rate)), dim=-1)
    return stepwise(_one, _chunked, (q, k, gates, v), ScanChunks.of(v.shape[2], chunk), cache)


def _one(q: Tensor, k: Tensor, gates: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the recurrence. All (B, H, 1, …), state: (B, H, 2n, p)."""
    keep, momentum, rate, _ = gates.split(1, dim=-1)
    memory, surprise = state.chunk(2, dim=-2)
    surprise = momentum.exp() * surprise + k.transpose(-1, -2) @ (rate * (v - k @ memory))
    memory = keep.exp() * memory + surprise
    return q @ memory, torch.cat((memory, surprise), dim=-2)


def _chunked(
    q: Tensor, k: Tensor, gates: Tensor, v: Tensor, state: Tensor | None, keeps: bool
) -> tuple[Tensor, Tensor | None]:
    """All (B, H, N, C, …) → outputs, and the state after the last token if `keeps`, else None."""
    # For all chunks at once: the terms that do not depend on the state.
    keep, momentum, rate, there = gates.split(1, dim=-1)
    kept, moved = keep.cumsum(dim=-2), momentum.cumsum(dim=-2)  # log Π_{0→t} of a and of η: (B, H, N, C, 1)
    forgetting, moving = pairwise(kept) * there.transpose(-1, -2), pairwise(moved)  # Π_{r→t} a, Π_{s→r} η: (…, C, C)
    reach = forgetting @ moving  # (1) C_ts
    # (1) A_t and B_t: (…, C, 1)
    of_memory, of_surprise = kept.exp(), (forgetting * moved.exp().transpose(-1, -2)).sum(dim=-1, keepdim=True)
    rates = rate.transpose(-1, -2)
    weights = q @ k.transpose(-1, -2) * reach * rates
    inverse: Tensor | None = None
    if q.shape[-2] > 1:  # for a single token, L = 0
        inverse = unit_inverse(_before(reach) * (k @ k.transpose(-1, -2)) * rates)  # (2) (I + L)⁻¹
    read = torch.cat((of_memory * q, of_surprise * q), dim=-1)  # times the state: A_t Mᵀ q_t + B_t Sᵀ q_t
    looked = torch.cat((_before(of_memory, 1.0) * k, _before(of_surprise) * k), dim=-1)  # (2) A_{t−1} ⊙ K, B_{t−1} ⊙ K
    parts: list[Tensor] = []
    # Chunk by chunk: the terms that do.
    for i in range(q.shape[2]):
        missed = v[:, :, i] if state is None else v[:, :, i] - looked[:, :, i] @ state
        missed = missed if inverse is None else inverse[:, :, i] @ missed  # (2) E: (B, H, C, p)
        out = weights[:, :, i] @ missed
        parts.append(out if state is None else out + read[:, :, i] @ state)
        if keeps or i + 1 < q.shape[2]:
            # Weights of each u_s in M and in S at the end of the chunk
            ends = (x[:, :, i, -1:].transpose(-1, -2) * rate[:, :, i] * missed for x in (reach, moving))
            added = torch.cat((k[:, :, i].transpose(-1, -2) @ torch.cat(list(ends), dim=-1)).chunk(2, dim=-1), dim=-2)
            if state is not None:  # what the state before the chunk contributes to that after it
                memory, surprise = state.chunk(2, dim=-2)
                to_memory, to_both, to_surprise = (x[:, :, i, -1:] for x in (of_memory, of_surprise, moved.exp()))
                before = torch.cat((to_memory * memory + to_both * surprise, to_surprise * surprise), dim=-2)
            state = added if state is None else before + added
    return torch.stack(parts, dim=2), state if keeps else None


def _before(x: Tensor, first: float = 0.0) -> Tensor:
    """(…, C, f) → rows shifted down by one, the first row set to `first`."""
    return F.pad(x[..., :-1, :], (0, 0, 1, 0), value=first)


REMEMBERS = -4.0
"""Initial bias of the forget gate, with which a token forgets 2 %."""


class Titans(LinearHeads):
    """M_t = (1 − α_t) M_{t−1} + S_t, S_t = η_t S_{t−1} − θ_t ∇ℓ(M_{t−1}; x_t), ℓ = ½ ‖Mᵀ k_t − v_t‖²: a memory trained
    by gradient descent with momentum (the paper's surprise). Behrouz et al. 2024 (Titans), arXiv:2501.00663, eq. 12–15.

    out = W_o (norm(M_tᵀ q_t) ⊙ silu(W_g x)). q, k, v = silu(conv(W x)), q and k normalised to length 1; α, η and θ =
    σ(w x), one number per head, α with a bias. This is the paper's long-term memory alone, one matrix (n, n) per head
    that starts from zero. The paper also has deep memories, attention beside the memory, and gradients of mini-batches,
    taken at the memory before a mini-batch. Here each gradient is taken at M_{t−1}, as in the equations, and `chunk`
    does not change results.
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
        return self.o(heads.transpose(1, 2).flatten(2))
