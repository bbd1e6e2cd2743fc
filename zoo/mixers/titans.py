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
from zoo.mixers._decayed import pairwise
from zoo.mixers._delta import inversion_flops, unit_inverse
from zoo.mixers._linear import LinearHeads, LinearHeadsLayer, split, unit
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
        """FLOPs per token of predicting, adding and reading."""
        return 6.0 * self.state

    def computed(self, length: int) -> float:
        chunks = ScanChunks.of(length, self.chunk)
        width = chunks.width
        # q kᵀ and what it does to values, twice where tokens are corrected by others
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
    """o_t = M_tᵀ q_t, M_t = a_t M_{t−1} + S_t, S_t = η_t S_{t−1} + θ_t k_t (v_t − M_{t−1}ᵀ k_t)ᵀ, from what the cache
    holds, M above S, or zero.

    q, k: (B, H, T, n), v: (B, H, T, p), log a ≤ 0, log η ≤ 0 and θ: (B, H, T) → (B, H, T, p). `chunk` is a power of
    two. Computed in float32 or more.

    Let Π_{s→t} a be the product of a after token s up to t. Within a chunk that begins with M and S, token s adds
    u_s = θ_s k_s e_sᵀ to S, with e_s = v_s − M_{s−1}ᵀ k_s, and M_t = A_t M + B_t S + Σ_{s≤t} C_ts u_s, where A_t = Π a,
    B_t = Σ_{r≤t} Π_{r→t} a Π_{0→r} η and C_ts = Σ_{s≤r≤t} Π_{r→t} a Π_{s→r} η, a product of two triangular matrices. So
    (I + L) E = V − (A_{t−1} ⊙ K) M − (B_{t−1} ⊙ K) S with L_ts = C_{t−1,s} θ_s k_t·k_s for s < t, as in `delta_scan`.
    """
    # Where the last chunk is filled up, momentum neither fades nor moves the memory.
    gates = torch.stack((keep, momentum, rate, torch.ones_like(rate)), dim=-1)
    return stepwise(_one, _chunked, (q, k, gates, v), chunk, cache)


def _one(q: Tensor, k: Tensor, gates: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence itself, for one token: all (B, H, 1, …)."""
    keep, momentum, rate, _ = gates.split(1, dim=-1)
    memory, surprise = state.chunk(2, dim=-2)
    surprise = momentum.exp() * surprise + k.transpose(-1, -2) @ (rate * (v - k @ memory))
    memory = keep.exp() * memory + surprise
    return q @ memory, torch.cat((memory, surprise), dim=-2)


def _chunked(
    q: Tensor, k: Tensor, gates: Tensor, v: Tensor, state: Tensor | None, keeps: bool
) -> tuple[Tensor, Tensor | None]:
    """All (B, H, N, C, …). → outputs, and the state after the last token where it is to be kept."""
    keep, momentum, rate, there = gates.split(1, dim=-1)
    kept, moved = keep.cumsum(dim=-2), momentum.cumsum(dim=-2)
    forgetting, moving = pairwise(kept) * there.transpose(-1, -2), pairwise(moved)
    reach = forgetting @ moving
    of_memory, of_surprise = kept.exp(), (forgetting * moved.exp().transpose(-1, -2)).sum(dim=-1, keepdim=True)
    rates = rate.transpose(-1, -2)
    weights = q @ k.transpose(-1, -2) * reach * rates
    inverse: Tensor | None = None
    if q.shape[-2] > 1:  # a token alone in its chunk is corrected by none there
        inverse = unit_inverse(_before(reach) * (k @ k.transpose(-1, -2)) * rates)
    read = torch.cat((of_memory * q, of_surprise * q), dim=-1)
    looked = torch.cat((_before(of_memory, 1.0) * k, _before(of_surprise) * k), dim=-1)
    parts: list[Tensor] = []
    for i in range(q.shape[2]):
        missed = v[:, :, i] if state is None else v[:, :, i] - looked[:, :, i] @ state
        missed = missed if inverse is None else inverse[:, :, i] @ missed
        out = weights[:, :, i] @ missed
        parts.append(out if state is None else out + read[:, :, i] @ state)
        if keeps or i + 1 < q.shape[2]:
            ends = (x[:, :, i, -1:].transpose(-1, -2) * rate[:, :, i] * missed for x in (reach, moving))
            added = torch.cat((k[:, :, i].transpose(-1, -2) @ torch.cat(list(ends), dim=-1)).chunk(2, dim=-1), dim=-2)
            state = added if state is None else _carried(state, of_memory, of_surprise, moved.exp(), i) + added
    return torch.stack(parts, dim=2), state if keeps else None


def _before(x: Tensor, first: float = 0.0) -> Tensor:
    """(…, C, f) → the row before each."""
    return F.pad(x[..., :-1, :], (0, 0, 1, 0), value=first)


def _carried(state: Tensor, of_memory: Tensor, of_surprise: Tensor, moved: Tensor, chunk: int) -> Tensor:
    """Contribution of the state before a chunk to the state after it: (B, H, 2n, p)."""
    memory, surprise = state.chunk(2, dim=-2)
    last_memory, last_surprise, last_moved = (x[:, :, chunk, -1:] for x in (of_memory, of_surprise, moved))
    return torch.cat((last_memory * memory + last_surprise * surprise, last_moved * surprise), dim=-2)


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
        return self.o(heads.transpose(1, 2).flatten(2))
