"""Mamba-3."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.states import StateCache
from zoo.compatibility.traits import OF_MODULES, Operations
from zoo.conv import on_text
from zoo.errors import SpecError
from zoo.init import Linear
from zoo.kernels.precision import at_default_precision, in_float32
from zoo.mixers import MixerLayer
from zoo.mixers._decay import first_steps
from zoo.mixers._heads import split
from zoo.mixers._linear import Stateful, StatefulLayer, check_width
from zoo.mixers._scan import STATE, ScanCost, scan
from zoo.norms import Norm
from zoo.norms.rmsnorm import RMSNorm
from zoo.positions._rotary import turn_pairs
from zoo.settings.axis import Choice, Examples, number
from zoo.settings.field_tags import HeadFeatures, Heads, MaxInTests
from zoo.site import ForwardPass, LayerSite, PartCost

KEY, VALUE, OWN, ANGLE = "key", "value", "own", "angle"
"""Cache names of the last token's tensors, beside the state."""
SLOWEST = 1e-4
"""Lower bound of A, as in the released code."""


def heavy_tail(x: Tensor) -> Tensor:
    """1 + x for x ≥ 0, 1/(1 − x) for x < 0."""
    return F.relu(x) + 1 / (1 + F.relu(-x))


RATES: dict[str, Callable[[Tensor], Tensor]] = {"softplus": F.softplus, "heavy_tail": heavy_tail}


class Mamba3(Stateful):
    """S_t = α_t S_{t−1} + (1 − λ_t) Δ_t α_t k_{t−1} x_{t−1}ᵀ + λ_t Δ_t k_t x_tᵀ, y_t = S_tᵀ q_t + D x_t,
    out = W_o (y ⊙ silu(W_z u)). Lahoti et al. 2026, arXiv:2603.15569.

    Each head of P features has Δ = softplus(W_Δ u + β), α = exp(−A Δ), A = softplus(W_A u) and λ = σ(W_λ u): the
    exponential-trapezoidal rule, which with λ = 1 is Mamba-2's. k_t = R_t (norm(W_b u) + b₀), q_t = R_t (norm(W_c u) +
    c₀): (N), with b₀ and c₀ per head, initially 1. R_t rotates feature pair i (neighbours) by Σ_{s≤t} Δ_s π tanh(W_θ
    u_s)_i, which amounts to a complex-valued transition; only the first features, a share of them, are rotated. There
    is no convolution.

    It is computed as H_t = α_t (H_{t−1} + (λ_{t−1} Δ_{t−1} + (1 − λ_t) Δ_t) k_{t−1} x_{t−1}ᵀ), the contribution of
    earlier tokens, and y_t = H_tᵀ q_t + λ_t Δ_t (k_t · q_t) x_t + D x_t: one outer product per token, as in Mamba-2's
    scan. Decoding caches H, the last token's k, x and λ Δ, and the angles, for any context.

    With `rank` R > 1 (MIMO, §3.3) a token has R keys, values and queries: it adds Σ_r k^(r) x^(r)ᵀ to the state, and
    y^(r) = S_tᵀ q^(r) + D x^(r). W_b and W_c have R times as many rows; x^(r) = m_x^(r) ⊙ x, gates are silu(m_z^(r) ⊙
    W_z u), and a head's output is Σ_r m_o^(r) ⊙ y^(r) ⊙ gate^(r), with vectors m: (P) of each head.
    """

    examples: ClassVar[Examples] = (
        {"head_dim": 6, "state": 5, "groups": 2, "chunk": 8, "rope_fraction": 1.0, "rank": 3},
        {"head_dim": 6, "state": 5, "chunk": 8, "rate_activation": "heavy_tail"},
    )
    paired_examples: ClassVar[int | None] = 1
    kind: Literal["mamba3"] = "mamba3"
    supports: ClassVar[Operations] = OF_MODULES
    heads: Heads = 4
    """H: number of heads of x."""
    head_dim: HeadFeatures | None = None
    """P: features of a head of x; null for 2 d_model / heads."""
    state: Annotated[PositiveInt, MaxInTests(16)] = 128
    """N: features of keys and queries; a head's state is (N, P)."""
    groups: Annotated[PositiveInt, MaxInTests(4)] = 1
    """Number of groups of heads that share W_b u and W_c u."""
    rope_fraction: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Fraction of the N features that are rotated."""
    rank: Annotated[PositiveInt, MaxInTests(2)] = Field(default=1, exclude_if=lambda rank: rank == 1)
    """R: keys, values and queries per token; 4 in the paper's MIMO models, whose FFNs are narrower in return."""
    rate_activation: Literal["softplus", "heavy_tail"] = Field(
        default="softplus", exclude_if=lambda name: name == "softplus"
    )
    """Function that turns W_A u into A: softplus, as in the paper, or `heavy_tail`, as in later releases of the
    authors' code (https://github.com/state-spaces/mamba): 1 + x for x ≥ 0, else 1/(1 − x), which falls more slowly."""
    bc_norm: Annotated[Norm, Choice("zoo.norms")] = RMSNorm(eps=1e-5)
    """Norm of W_b u and W_c u, over N features, before b₀ and c₀ are added."""

    def resolve(self, d_model: int) -> Self:
        if self.head_dim is None:
            check_width(self.heads, 2 * d_model, "head_dim")
        if self.heads % self.groups:
            raise SpecError("groups", f"{self.groups} groups do not divide {self.heads} heads")
        if not self.pairs:
            raise SpecError("rope_fraction", f"{self.rope_fraction:g} of {self.state} features is less than one pair")
        return self.model_copy(update={"head_dim": self.head_dim or 2 * d_model // self.heads})

    @property
    def pairs(self) -> int:
        """Number of feature pairs that are rotated."""
        return int(self.state * self.rope_fraction) // 2

    @property
    def features(self) -> int:
        """P of a resolved spec."""
        return number(self.head_dim)

    def build(self, site: LayerSite) -> MixerLayer:
        return Mamba3Layer(self, site.d_model)

    def matrices(self, d_model: int) -> int:
        read = 2 * self.groups * self.rank * self.state + 3 * self.heads + self.pairs
        return d_model * (3 * self.heads * self.features + read)

    def vectors(self, d_model: int) -> int:
        vectors = 3 * self.heads * self.rank * self.features if self.rank > 1 else 0
        biases = 2 * self.heads * self.rank * self.state
        return 2 * self.heads + biases + 2 * self.bc_norm.parameters(self.state) + vectors

    def cost(self, d_model: int, context: int) -> PartCost:
        """Cost including the products of a token's queries with its own keys and values, if the rank is above 1."""
        own = 2.0 * self.heads * self.rank**2 * (self.state + self.features) if self.rank > 1 else 0.0
        return super().cost(d_model, context) + PartCost.of(0, own)

    def scanning(self) -> ScanCost:
        return ScanCost(self.heads, self.state, self.heads, self.features, self.chunk, rank=self.rank)

    def states(self) -> Mapping[str, tuple[int, ...]]:
        sizes = {STATE: (self.state, self.features), KEY: (self.rank, self.state), VALUE: (self.features,), OWN: ()}
        return {name: (self.heads, *size) for name, size in {**sizes, ANGLE: (self.pairs,)}.items()}


class Steps(NamedTuple):
    """Per-head, per-token parameters of the recurrence, in float32 or wider: (B, H, T) each."""

    delta: Tensor
    decay: Tensor
    """log α."""
    own: Tensor
    """λ Δ."""
    carried: Tensor
    """(1 − λ) Δ: weight of the previous token's outer product."""


class Mamba3Layer(StatefulLayer):
    """u: (B, T, D) → (B, T, D)."""

    def __init__(self, spec: Mamba3, d_model: int) -> None:
        super().__init__(spec)
        self.spec = spec
        inner, read = spec.heads * spec.features, spec.groups * spec.rank * spec.state
        self.gate = Linear(d_model, inner, role="input")
        self.x = Linear(d_model, inner, role="input", values=True)
        self.b, self.c = (Linear(d_model, read, role="input") for _ in range(2))
        self.rate_of = RATES[spec.rate_activation]
        self.step, self.rate, self.share = (Linear(d_model, spec.heads, role="input") for _ in range(3))
        self.angle = Linear(d_model, spec.pairs, role="input")
        self.b_norm, self.c_norm = (spec.bc_norm.build(spec.state) for _ in range(2))
        self.o = Linear(inner, d_model, role="output")
        self.b_bias, self.c_bias = (nn.Parameter(torch.ones(spec.heads, spec.rank, spec.state)) for _ in range(2))
        self.step_bias = nn.Parameter(first_steps(spec.heads))
        self.skip = nn.Parameter(torch.ones(spec.heads))
        self.ranks = Ranks(spec) if spec.rank > 1 else None
        self.roles = {"b_bias": "bias", "c_bias": "bias", "step_bias": "bias", "skip": "gain"}
        self.initial = {"b_bias": 1.0, "c_bias": 1.0, "step_bias": first_steps(spec.heads)}

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        states = kept_by(self, cache, StateCache)
        steps = self._steps(x)
        values = split(on_text(self.x(x), step), self.spec.heads).to(steps.delta.dtype)
        angles = self._angles(x, steps.delta, step, states)
        k = self._turned(self.b_norm(self._read(self.b, x)), self.b_bias, angles)
        q = self._turned(self.c_norm(self._read(self.c, x)), self.c_bias, angles)
        before = [_shifted(part, name, states) for name, part in ((KEY, k), (VALUE, values), (OWN, steps.own))]
        taken = steps.decay.exp() * (before[2] + steps.carried)
        fed, fed_before = (self._fed(part) for part in (values, taken[..., None] * before[1]))
        # The scan sees R rows per token, of which the first has the decay.
        decay = F.pad(steps.decay[..., None], (0, self.spec.rank - 1)).flatten(2)
        rows, keys, values_in = (part.flatten(2, 3) for part in (q, before[0], fed_before))
        scanned = scan(rows, keys, values_in, decay, self.spec.chunk, cache, self.spec.rank)
        scanned = scanned.unflatten(2, (-1, self.spec.rank))
        mixed = scanned + self._own(q, k, fed, steps.own) + self.skip[:, None, None, None] * fed
        return self._written(mixed.to(x.dtype), split(self.gate(x), self.spec.heads))

    def _read(self, project: Linear, x: Tensor) -> Tensor:
        """(B, T, D) → (B, G, T, R, N)."""
        out: Tensor = split(project(x), self.spec.groups).unflatten(-1, (self.spec.rank, self.spec.state))
        return out

    def _fed(self, values: Tensor) -> Tensor:
        """Values as they enter the state: (B, H, T, P) → (B, H, T, R, P)."""
        values = values[..., None, :]
        return values if self.ranks is None else values * self.ranks.x[:, None].to(values.dtype)

    def _own(self, q: Tensor, k: Tensor, v: Tensor, own: Tensor) -> Tensor:
        """λ Δ Σ_j (q^(i) · k^(j)) x^(j): (B, H, T, R, P), the read of a token's own keys and values."""
        if self.ranks is None:
            return (own[..., None] * (q * k).sum(dim=-1))[..., None] * v
        through_keys = partial(at_default_precision, lambda q, k, v: q @ k.transpose(-1, -2) @ v)  # (q kᵀ) v
        return own[..., None, None] * in_float32(through_keys, q, k, v)

    def _written(self, mixed: Tensor, gate: Tensor) -> Tensor:
        """Gate, sum over ranks and project: mixed: (B, H, T, R, P), gate: (B, H, T, P) → (B, T, D)."""
        gate = gate[..., None, :]
        if self.ranks is None:
            heads = (mixed * F.silu(gate)).squeeze(-2)
        else:
            heads = (mixed * F.silu(gate * self.ranks.gate[:, None]) * self.ranks.out[:, None]).sum(dim=-2)
        return self.o(heads.transpose(1, 2).flatten(2))

    def _steps(self, x: Tensor) -> Steps:
        kind = torch.promote_types(x.dtype, torch.float32)
        raw, rate, share = (each(x).to(kind).transpose(1, 2) for each in (self.step, self.rate, self.share))
        delta = F.softplus(raw + self.step_bias[:, None].to(kind))
        share = share.sigmoid()
        rate = self.rate_of(rate).clamp(min=SLOWEST)
        return Steps(delta, -rate * delta, share * delta, (1 - share) * delta)

    def _angles(self, x: Tensor, delta: Tensor, step: ForwardPass, states: StateCache | None) -> Tensor:
        """Rotation angles: (B, H, T, pairs); caches the last token's, modulo 2π."""
        speed = on_text(self.angle(x).to(delta.dtype).tanh() * math.pi, step)
        angles = (speed[:, None] * delta[..., None]).cumsum(dim=2)
        before = None if states is None else states.read(ANGLE, delta.dtype)
        if before is not None:
            angles = angles + before[:, :, None]
        if states is not None:
            states.write(ANGLE, angles[:, :, -1] % (2 * math.pi))
        return angles

    def _turned(self, read: Tensor, bias: Tensor, angles: Tensor) -> Tensor:
        """Add the bias and rotate: (B, G, T, R, N) → (B, H, T, R, N)."""
        read = read.to(angles.dtype).repeat_interleave(self.spec.heads // self.spec.groups, dim=1)
        cos, sin = angles.cos()[..., None, :], angles.sin()[..., None, :]
        return turn_pairs(read + bias[:, None].to(angles.dtype), cos, sin, "interleaved")


class Ranks(nn.Module):
    """m_x, m_z and m_o: (H, R, P) each, initially 1/R, 1 and 1/R."""

    roles: ClassVar = {"x": "gain", "gate": "gain", "out": "gain"}

    def __init__(self, spec: Mamba3) -> None:
        super().__init__()
        self.x, self.gate, self.out = (nn.Parameter(torch.ones(spec.heads, spec.rank, spec.features)) for _ in range(3))
        self.initial = {"x": 1 / spec.rank, "gate": 1.0, "out": 1 / spec.rank}


def _shifted(x: Tensor, name: str, states: StateCache | None) -> Tensor:
    """x: (B, H, T, …) → the previous token's values, zero before the first token; caches the last token's."""
    before = None if states is None else states.read(name, x.dtype)
    first = torch.zeros_like(x[:, :, :1]) if before is None else before[:, :, None]
    shifted = torch.cat((first, x[:, :, :-1]), dim=2)
    if states is not None:
        states.write(name, x[:, :, -1])  # last, since `before` may be a view of the cache
    return shifted
