"""Chunked scan of a linear recurrence: a state that decays and adds one outer product per token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.caching.cache import LayerCache, kept_by
from zoo.caching.states import StateCache
from zoo.kernels.fla import can_scan, fla_scan
from zoo.kernels.precision import at_default_precision, in_float32
from zoo.mixers._decay import decayed_score_flops, decayed_scores

STATE = "state"
"""Name of the state in a layer's cache."""


@dataclass(frozen=True)
class ScanChunks:
    """Division of `length` rows into `count` chunks of `width` rows, the last one padded.

    A sequence shorter than a chunk gets one chunk of the least power of two that holds it.
    """

    length: int
    width: int

    @staticmethod
    def of(length: int, chunk: int, rank: int = 1) -> ScanChunks:
        """Chunks of at most `chunk` tokens for `length` tokens of `rank` rows each."""
        return ScanChunks(length * rank, min(chunk, 1 << (length - 1).bit_length()) * rank)

    @property
    def count(self) -> int:
        return -(-self.length // self.width)

    @property
    def pairs(self) -> int:
        """Number of pairs of rows j ≤ i in the same chunk."""
        whole, rest = divmod(self.length, self.width)
        return whole * self.width * (self.width + 1) // 2 + rest * (rest + 1) // 2

    def cut(self, x: Tensor) -> Tensor:
        """(B, …, T, f) → (B, …, N, C, f), padded with zeros."""
        padded = F.pad(x, (0, 0, 0, self.count * self.width - self.length))
        cut: Tensor = padded.unflatten(-2, (self.count, self.width))
        return cut

    def join(self, x: Tensor) -> Tensor:
        """(B, …, N, C, f) → (B, …, T, f), without the padding."""
        return x.flatten(-3, -2)[..., : self.length, :]


@dataclass(frozen=True)
class ScanCosts:
    """FLOPs of several scans in one mixer: `ScanCost(…) + ScanCost(…)`."""

    parts: tuple[ScanCost, ...]

    @property
    def halves(self) -> bool:
        return any(part.halves for part in self.parts)

    @property
    def token(self) -> float:
        return sum(part.token for part in self.parts)

    def computed(self, length: int) -> float:
        return sum(part.computed(length) for part in self.parts)


@dataclass(frozen=True)
class ScanCost:
    """FLOPs of `scan`: G groups of n key features, H heads of p value features."""

    groups: int
    key_features: int
    heads: int
    features: int
    chunk: int
    channels: bool = False
    """Whether each key feature has its own decay."""
    rank: int = 1
    """Number of keys and values, and in `scan` of queries, per token."""

    def __add__(self, other: ScanCost) -> ScanCosts:
        return ScanCosts((self, other))

    @property
    def halves(self) -> bool:
        """Whether chunks are halved recursively down to one token, and so must be a power of two."""
        return self.channels

    @property
    def state(self) -> int:
        """Number of elements of the state."""
        return self.heads * self.key_features * self.features

    @property
    def token(self) -> float:
        """FLOPs per token of the recurrence: updating the state and reading from it."""
        return 4.0 * self.state * self.rank

    def computed(self, length: int) -> float:
        """FLOPs of the products in `_chunked` for a whole text of `length` tokens, without the final state."""
        chunks = ScanChunks.of(length, self.chunk, self.rank)
        inside = self._scored(chunks.width) + self._mixed(chunks.width)
        return chunks.count * inside + 4.0 * self.state * (chunks.count - 1) * chunks.width

    def _scored(self, width: int) -> float:
        """FLOPs of the decayed products of queries, or keys, with the keys of a chunk."""
        return decayed_score_flops(self.channels, self.heads, self.groups, self.key_features, width)

    def _mixed(self, width: int) -> float:
        """FLOPs of the product of a chunk's (C, C) matrices with its values."""
        return 2.0 * self.heads * self.features * width**2


def scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None,
    chunk: int,
    cache: LayerCache | None = None,
    rank: int = 1,
    name: str = STATE,
) -> Tensor:
    """o_t = S_tᵀ q_t, S_t = exp(g_t) S_{t−1} + k_t v_tᵀ, from the cached state or zero.

    name: of the state in the cache; the scans of one mixer need different names.

    q, k: (B, G, T, n), v: (B, H, T, p) → (B, H, T, p). The decay g ≤ 0 broadcasts to (B, H, T), or is (B, H, T, n) with
    one number per key feature, that is, per row of S; None for 0. The H/G heads of group i share its queries and keys.
    Computed in float32 or wider, except by the kernels of `zoo.kernels.fla`, where these are in use.

    Within a chunk, let c_i be the decay summed up to token i, and S the state before the chunk:

    (1) O = (Q Kᵀ ⊙ exp(c_i − c_j)) V + (e^c ⊙ Q) S, with j ≤ i (per feature: see `zoo.mixers._decay`)
    (2) S ← e^{c_C} S + (exp(c_C − c) ⊙ K)ᵀ V

    With a rank, T counts rows, `rank` per token. All queries of a token read the state after all its keys and values
    were added. The first row of a token holds its decay, the other rows 0.
    """
    check_parts(q, k, v, decay=decay)
    heads, length = v.shape[1], v.shape[2]
    decay = torch.zeros(1, 1, 1, device=v.device) if decay is None else decay
    if rank == 1 and can_scan(q, k, v):
        return scan_in_kernel(q, k, v, decay if decay.dim() == 4 else decay.expand(*v.shape[:3]), None, cache, name)
    decay = (decay if decay.dim() == 4 else decay[..., None]).expand(-1, heads, length, -1)
    parts = q[:, :, None], k[:, :, None], by_group(decay, q), by_group(v, q)
    chunks = ScanChunks.of(length // rank, chunk, rank)
    return stepwise(_one, partial(_chunked, rank=rank), parts, chunks, cache, rank, name).flatten(1, 2)


def check_parts(q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, strength: Tensor | None = None) -> None:
    """Raise a ValueError that names the tensor unless q and k are (B, G, T, n), v is (B, H, T, p) with G dividing H,
    decay is (B, H, T) or (B, H, T, n), and strength is (B, H, T), or they broadcast to these shapes."""
    for name, x in (("q", q), ("v", v)):
        if x.dim() != 4:
            raise ValueError(f"{name}: expected (B, heads, T, features), not {tuple(x.shape)}")
    rows = (*v.shape[:2], q.shape[2])  # (B, H, T)
    check_shape("k", k, q.shape, "(B, G, T, n), as q")
    check_shape("v", v, (*rows, v.shape[3]), "(B, H, T, p)")
    if v.shape[1] % q.shape[1]:
        raise ValueError(f"v: must have a multiple of the {q.shape[1]} heads of q and k, not {v.shape[1]}")
    if decay is not None:
        wanted = (*rows, q.shape[3]) if decay.dim() == 4 else rows
        check_shape("decay", decay, wanted, "(B, H, T) or (B, H, T, n)")
    if strength is not None:
        check_shape("strength", strength, rows, "(B, H, T)")


def check_shape(name: str, x: Tensor, wanted: Sequence[int], letters: str) -> None:
    """Raise a ValueError that names the tensor unless each of its sizes is the wanted one or 1."""
    if torch.compiler.is_compiling():
        return  # sizes may be symbolic there
    if x.dim() != len(wanted) or any(size not in (want, 1) for size, want in zip(x.shape, wanted, strict=True)):
        raise ValueError(f"{name}: expected {letters}, here {tuple(wanted)}, not {tuple(x.shape)}")


def scan_in_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    strength: Tensor | None,
    cache: LayerCache | None,
    name: str = STATE,
) -> Tensor:
    """Run `fla_scan` from the cached state or zero, and cache the state after it."""
    states = kept_by("a recurrent layer", cache, StateCache)
    before = states.read(name, torch.promote_types(v.dtype, torch.float32)) if states is not None else None
    out, after = fla_scan(q, k, v, decay, strength, before, states is not None)
    if states is not None and after is not None:
        states.write(name, after)
    return out


OneToken = Callable[..., tuple[Tensor, Tensor]]
"""Inputs of one token, state before it → output, state after it."""
Chunked = Callable[..., tuple[Tensor, Tensor | None]]
"""Inputs in chunks, state before them or None, whether to keep the final state → outputs, final state or None."""


def stepwise(
    one: OneToken,
    chunked: Chunked,
    parts: Sequence[Tensor],
    chunks: ScanChunks,
    cache: LayerCache | None,
    rank: int = 1,
    name: str = STATE,
) -> Tensor:
    """Run a recurrence over `parts` (B, …, T, f) from the cached state or zero: `one` for a single token (`rank` rows)
    after a cached state, otherwise `chunked` on chunks (B, …, N, C, f). Computed in float32 or wider."""
    states = kept_by("a recurrent layer", cache, StateCache)
    last = parts[-1]
    kind, length, heads = torch.promote_types(last.dtype, torch.float32), last.shape[-2], last.shape[1:-2]

    def run(*parts: Tensor) -> Tensor:
        state = states.read(name, kind) if states is not None else None
        before = None if state is None else state.unflatten(1, heads)
        after: Tensor | None
        if length == rank and before is not None:
            out, after = one(*parts, before)
        else:
            out, after = chunked(*(chunks.cut(x) for x in parts), before, states is not None)
            out = chunks.join(out)
        if states is not None and after is not None:
            states.write(name, after.flatten(1, -3))
        return out

    return in_float32(partial(at_default_precision, run), *parts)


def by_group(x: Tensor, q: Tensor) -> Tensor:
    """(B, H, …) → (B, G, H/G, …), for q of G groups."""
    grouped: Tensor = x.unflatten(1, (q.shape[1], -1))
    return grouped


def _one(q: Tensor, k: Tensor, decay: Tensor, v: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One step of the recurrence, for the r rows of one token. All (B, G, H/G or 1, r, …), state: (B, G, H/G, n, p)."""
    factor = decay.sum(dim=-2, keepdim=True).exp()
    state = factor.transpose(-1, -2) * state + k.transpose(-1, -2) @ v
    return q @ state, state


def _chunked(
    q: Tensor, k: Tensor, decay: Tensor, v: Tensor, state: Tensor | None, keep: bool, rank: int
) -> tuple[Tensor, Tensor | None]:
    """All (B, G, H/G or 1, N, C, …), state: (B, G, H/G, n, p) before the first token, None for zero → outputs, and the
    state after the last token if `keep`, else None."""
    total, count = decay.cumsum(dim=-2), q.shape[3]  # c: (B, G, H/G, N, C, 1 or n)
    out = decayed_scores(q, k, total, rank) @ v  # (1), without S
    left = count if keep else count - 1
    before = [] if state is None else [state]  # S before each chunk
    if left:
        last = total[..., -1:, :]
        added = decayed_write(*(x[:, :, :, :left] for x in (k, (last - total).exp(), v)))  # (2), without S
        fading = last[:, :, :, :left].exp().transpose(-1, -2)
        before += carry(added.unbind(3), fading.unbind(3), state)
    final = before.pop() if keep else None
    if before:
        # Without an initial state, the first chunk has no state to read.
        skipped = count - len(before)
        fading = total[:, :, :, skipped:].exp()
        read = decayed_read(q[:, :, :, skipped:], fading, torch.stack(before, dim=3))  # (1), (e^c ⊙ Q) S
        out = out + F.pad(read, (0, 0, 0, 0, skipped, 0))
    return out, final


def decayed_read(q: Tensor, factor: Tensor, state: Tensor) -> Tensor:
    """(q ⊙ factor) S. q: (…, C, n), factor: (…, C, 1 or n), S: (…, n, p) → (…, C, p)."""
    # A factor common to all features is cheaper after the product: before it, q would expand from groups to heads.
    return q @ state * factor if factor.shape[-1] == 1 else (q * factor) @ state


def decayed_write(k: Tensor, factor: Tensor, value: Tensor) -> Tensor:
    """(k ⊙ factor)ᵀ V. k: (…, C, n), factor: (…, C, 1 or n), V: (…, C, p) → (…, n, p)."""
    if factor.shape[-1] == 1:
        return k.transpose(-1, -2) @ (factor * value)
    return (k * factor).transpose(-1, -2) @ value


def carry(added: Sequence[Tensor], factors: Sequence[Tensor], state: Tensor | None) -> list[Tensor]:
    """States after each chunk i: S_i = factor_i S_{i−1} + added_i."""
    states: list[Tensor] = []
    for new, fading in zip(added, factors, strict=True):
        state = new if state is None else fading * state + new
        states.append(state)
    return states
