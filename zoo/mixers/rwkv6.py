"""RWKV-6."""

from __future__ import annotations

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
from zoo.mixers._decay import decayed_scores
from zoo.mixers._heads import NormPerHead, split
from zoo.mixers._linear import LowRank, Stateful, StatefulLayer, sizes_in
from zoo.mixers._scan import STATE, ScanChunks, ScanCost, carry, decayed_read, decayed_write, stepwise
from zoo.norms import Norm
from zoo.norms.layernorm import LayerNorm
from zoo.settings.axis import Choice, Examples, number
from zoo.settings.field_tags import Features, HeadFeatures, Heads
from zoo.site import ForwardPass, LayerSite


def scan_before(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, chunk: int, cache: LayerCache | None = None) -> Tensor:
    """o_t = S_{t−1}ᵀ q_t, S_t = diag(exp(g_t)) S_{t−1} + k_t v_tᵀ, from the cached state or zero.

    q, k, decay g ≤ 0: (B, H, T, n), v: (B, H, T, p) → (B, H, T, p). `chunk` is a power of two. Costs as much as `scan`
    with `channels` (`ScanCost`).
    """
    return stepwise(_one, _chunked, (q, k, decay, v), ScanChunks.of(v.shape[2], chunk), cache)


def _one(q: Tensor, k: Tensor, decay: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the recurrence. All (B, H, 1, …), state: (B, H, n, p)."""
    return q @ state, decay.exp().transpose(-1, -2) * state + k.transpose(-1, -2) @ v


def _chunked(
    q: Tensor, k: Tensor, decay: Tensor, v: Tensor, state: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """All (B, H, N, C, …) → outputs, and the state after the last token if `keep`, else None."""
    total = decay.cumsum(dim=-2)  # (B, H, N, C, n)
    # Token i reads the state before it, in which token j has decayed by g_{j+1} + … + g_{i−1}. So query i is scored at
    # row i − 1, and the rows of scores are then shifted back by one.
    ahead = F.pad(q, (0, 0, -1, 1))
    scores = F.pad(decayed_scores(ahead, k, total), (0, 0, 1, -1))  # (B, H, N, C, C), zero for j ≥ i
    out = scores @ v
    count = q.shape[2]
    left = count if keep else count - 1
    before = [] if state is None else [state]
    if left:
        last = total[..., -1:, :]
        added = decayed_write(*(x[:, :, :left] for x in (k, (last - total).exp(), v)))
        fading = last[:, :, :left].exp().transpose(-1, -2)
        before += carry(added.unbind(2), fading.unbind(2), state)
    final = before.pop() if keep else None
    if before:
        skipped = count - len(before)  # without an initial state, the first chunk has no state to read
        faded = F.pad(total, (0, 0, 1, -1)).exp()[:, :, skipped:]
        read = decayed_read(q[:, :, skipped:], faded, torch.stack(before, dim=2))
        out = out + F.pad(read, (0, 0, 0, 0, skipped, 0))
    return out, final


READERS = {"w": (1.0, 0.0), "k": (1.0, 0.0), "v": (1.0, 0.3), "r": (0.5, 0.0), "g": (0.5, 0.0)}
"""Projections, each of which mixes a token with the previous one in its own share, and the numbers that set the initial
share: see `_shares`."""
FASTEST = 20.0
"""Upper bound of −log of a decay: e^−20 is below float32's resolution, and larger values would only cost precision."""


class RWKV6(Stateful):
    """S_t = diag(w_t) S_{t−1} + k_t v_tᵀ, out = W_o (norm((S_{t−1} + diag(u) k_t v_tᵀ)ᵀ r_t) ⊙ g_t): a token reads the
    previous state, and itself with a bonus u. Peng et al. 2024 (Finch), arXiv:2404.05892.

    Each of r, k, v, g and w reads x_t + (x_{t−1} − x_t) ⊙ (λ + tanh(x′ A) B) with its own λ, A and B and a common x′ =
    x_t + (x_{t−1} − x_t) ⊙ μ. w = exp(−exp(w₀ + tanh(x A) B)), one decay per key feature; g = silu(W_g x). Null ranks
    have the ratio to d_model of the paper's 32 and 64 at 768.
    """

    examples: ClassVar[Examples] = ({"chunk": 8, "mix_rank": 3, "decay_rank": 5},)
    paired_examples: ClassVar[int | None] = 0
    kind: Literal["rwkv6"] = "rwkv6"
    supports: ClassVar[Operations] = OF_MODULES
    heads: Heads = 4
    """H: number of heads, of d_model / heads features each."""
    head_dim: HeadFeatures | None = None
    """Features of a head; null for d_model / heads, the only allowed value."""
    mix_rank: Features | None = None
    """Rank of A and B for the share of the previous token; null for d_model / 24, at least 8."""
    decay_rank: Features | None = None
    """Rank of A and B for the decay w; null for d_model / 12, at least 8."""
    head_norm: Annotated[Norm, Choice("zoo.norms")] = LayerNorm(eps=64e-5)
    """Norm of each head's output, with its own gains."""

    def resolve(self, d_model: int) -> Self:
        return self.model_copy(update=sizes_in(self, d_model, {"mix_rank": 24, "decay_rank": 12}))

    def sizes(self) -> tuple[int, int, int]:
        """Features of a head and the two ranks, of a resolved spec."""
        return number(self.head_dim), number(self.mix_rank), number(self.decay_rank)

    def build(self, site: LayerSite) -> MixerLayer:
        return RWKV6Layer(self, site)

    def matrices(self, d_model: int) -> int:
        _, mix_rank, decay_rank = self.sizes()
        return 5 * d_model**2 + 2 * d_model * (len(READERS) * mix_rank + decay_rank)

    def vectors(self, d_model: int) -> int:
        """Number of parameters of μ, all λ, w₀, u and the norm."""
        return (1 + len(READERS) + 2) * d_model + self.heads * self.head_norm.parameters(self.sizes()[0])

    def scanning(self) -> ScanCost:
        head_dim = self.sizes()[0]
        return ScanCost(self.heads, head_dim, self.heads, head_dim, self.chunk, channels=True)

    def states(self) -> Mapping[str, tuple[int, ...]]:
        head_dim = self.sizes()[0]
        return {STATE: (self.heads, head_dim, head_dim), SHIFT: (self.heads * head_dim,)}


class RWKV6Layer(StatefulLayer):
    """x: (B, T, D) → (B, T, D)."""

    roles: ClassVar = {"share": "gain", "bonus": "bias"}

    def __init__(self, spec: RWKV6, site: LayerSite) -> None:
        super().__init__(spec)
        self.heads, self.chunk, d_model = spec.heads, spec.chunk, site.d_model
        head_dim, mix_rank, decay_rank = spec.sizes()
        self.shift = TokenShift(d_model)
        self.share = nn.Parameter(torch.zeros(d_model))
        """μ."""
        self.shares = nn.ModuleList(LowRank(d_model, mix_rank, d_model, bias=True, between=torch.tanh) for _ in READERS)
        """λ, A and B, in the order of `READERS`."""
        self.r, self.k, self.g = (Linear(d_model, d_model, role="input") for _ in range(3))
        self.v = Linear(d_model, d_model, role="input", values=True)
        self.decay = LowRank(d_model, decay_rank, d_model, bias=True, between=torch.tanh)
        self.bonus = nn.Parameter(torch.zeros(spec.heads, head_dim))
        """u."""
        self.head_norm = NormPerHead(spec.head_norm, spec.heads, head_dim)
        self.o = Linear(d_model, d_model, role="output")
        # As in the authors' code: w₀ = −6 + 5 (i/(D − 1))^(0.7 + 1.3 l/(L − 1)), slowest features first, and
        # u = l/(L − 1) · (1 − i/(D − 1)), plus 0, 0.1 and −0.1 in turn.
        shares, features = _shares(site), torch.linspace(0, 1, d_model, dtype=torch.float64)
        turns = (torch.arange(d_model, device=features.device) + 1) % 3 - 1
        bonus = (_depth(site) * (1 - features) + 0.1 * turns).float()
        self.initial = {"share": shares["w"], "bonus": bonus.view(spec.heads, head_dim)}
        self._start(self.decay, (-6 + 5 * features ** (0.7 + 1.3 * _depth(site))).float())
        for name, read in zip(READERS, self.shares, strict=True):
            self._start(read, shares[name])

    @staticmethod
    def _start(read: nn.Module, bias: Tensor) -> None:
        """Initialise as the authors do: A at zero, B small, so that the output starts as the constant `bias`."""
        part: Any = read
        part.down.init_gain = 0.0
        part.up.initial, part.up.initial_std = {"bias": bias}, {"weight": 0.01 / 3**0.5}

    def forward(self, x: Tensor, step: ForwardPass, cache: LayerCache | None = None) -> Tensor:
        before = self.shift(x, step, cache)
        common = mixed(x, before, self.share)
        read = {name: mixed(x, before, share(common)) for name, share in zip(READERS, self.shares, strict=True)}
        k = on_text(self.k(read["k"]), step)
        r, k, v = (split(part, self.heads) for part in (self.r(read["r"]), k, self.v(read["v"])))  # (B, H, T, n)
        raw = split(self.decay(read["w"]), self.heads)
        decay = -raw.to(torch.promote_types(raw.dtype, torch.float32)).exp().clamp(max=FASTEST)  # log w: (B, H, T, n)
        past = scan_before(r, k, v, decay, self.chunk, cache).to(v.dtype)
        own = (r * k * self.bonus[:, None]).sum(-1, keepdim=True) * v
        heads = self.head_norm(past + own).transpose(1, 2).flatten(2)
        return self.o(heads * F.silu(self.g(read["g"])))


def _depth(site: LayerSite) -> float:
    """Relative depth: 0 in the first layer, 1 in the last."""
    return min(1.0, site.layer / max(1, site.n_layers - 1))


def _shares(site: LayerSite) -> dict[str, Tensor]:
    """Initial λ in the authors' code: 1 − (i/D)^(c (1 − l/L)) − a · l/(L − 1) for feature i in layer l: (D,) each."""
    features = torch.arange(site.d_model, dtype=torch.float64) / site.d_model
    late = 1 - min(site.layer, site.n_layers - 1) / site.n_layers
    return {
        name: (1 - features ** (power * late) - less * _depth(site)).float() for name, (power, less) in READERS.items()
    }
