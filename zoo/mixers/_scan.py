"""A state that decays and takes up one outer product per token, computed a chunk of tokens at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.cache import LayerCache, kept_by
from zoo.cache_states import StateCache
from zoo.precision import at_default_precision, in_float32

STATE = "state"
"""What a layer's cache calls it."""


@dataclass(frozen=True)
class Chunks:
    """How a sequence of `length` tokens is cut: `count` chunks of `width`, the last one padded.

    A sequence shorter than a chunk makes one of the least power of two that holds it.
    """

    length: int
    width: int

    @staticmethod
    def of(length: int, chunk: int) -> Chunks:
        return Chunks(length, min(chunk, 1 << (length - 1).bit_length()))

    @property
    def count(self) -> int:
        return -(-self.length // self.width)

    @property
    def pairs(self) -> int:
        """How many pairs of a token and one at or before it in its chunk there are."""
        whole, rest = divmod(self.length, self.width)
        return whole * self.width * (self.width + 1) // 2 + rest * (rest + 1) // 2

    def cut(self, x: Tensor) -> Tensor:
        """(B, …, T, f) → (B, …, N, C, f), zeros where there is no token."""
        padded = F.pad(x, (0, 0, 0, self.count * self.width - self.length))
        cut: Tensor = padded.unflatten(-2, (self.count, self.width))
        return cut

    def join(self, x: Tensor) -> Tensor:
        """(B, …, N, C, f) → (B, …, T, f)."""
        return x.flatten(-3, -2)[..., : self.length, :]


@dataclass(frozen=True)
class ScanCost:
    """FLOPs of `scan`: G groups of n key features, H heads of p value features."""

    groups: int
    key_features: int
    heads: int
    features: int
    chunk: int

    @property
    def state(self) -> int:
        """Numbers in the state."""
        return self.heads * self.key_features * self.features

    @property
    def token(self) -> float:
        """Of one token of the recurrence: what it adds to the state, and what it reads of it."""
        return 4.0 * self.state

    def computed(self, length: int) -> float:
        """Of the products of `_chunked`, over a text from its beginning that leaves no state behind."""
        chunks = Chunks.of(length, self.chunk)
        pairs = chunks.count * chunks.width**2
        return pairs * self._per_pair + 4.0 * self.state * (chunks.count - 1) * chunks.width

    @property
    def _per_pair(self) -> float:
        return 2.0 * (self.groups * self.key_features + self.heads * self.features)


def scan(q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, chunk: int, cache: LayerCache | None = None) -> Tensor:
    """o_t = S_tᵀ q_t, S_t = exp(g_t) S_{t−1} + k_t v_tᵀ, from the state that the cache holds, or zero.

    q, k: (B, G, T, n), v: (B, H, T, p), decay g ≤ 0: broadcasts to (B, H, T), None for 0 → (B, H, T, p). Queries and
    keys of group i are read by its H/G heads. Within a chunk, o = (q kᵀ ⊙ D) v with D_ij = exp(g_{j+1} + … + g_i) for
    j ≤ i and 0 beyond. Computed in float32 or more.
    """
    states = kept_by("a recurrent layer", cache, StateCache)
    kind = torch.promote_types(v.dtype, torch.float32)
    heads, length = v.shape[1], v.shape[2]
    decay = torch.zeros(1, 1, 1, device=v.device) if decay is None else decay
    decay = decay.expand(-1, heads, length)

    def run(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
        state = states.read(STATE, kind) if states is not None else None
        if length == 1 and state is not None:
            out, state = _one(q, k, v, decay, by_group(state, q))
        else:
            first = None if state is None else by_group(state, q)
            out, state = _chunked(q, k, v, decay, Chunks.of(length, chunk), first, states is not None)
        if states is not None and state is not None:
            states.write(STATE, state.flatten(1, 2))
        return out

    return in_float32(partial(at_default_precision, run), q, k, v, decay)


def by_group(x: Tensor, q: Tensor) -> Tensor:
    """(B, H, …) → (B, G, H/G, …)."""
    grouped: Tensor = x.unflatten(1, (q.shape[1], -1))
    return grouped


def _one(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence itself, for one token."""
    value, factor = by_group(v, q), by_group(decay, q).exp()[..., None]
    state = factor * state + k[:, :, None].transpose(-1, -2) @ value
    return (q[:, :, None] @ state).flatten(1, 2), state


def _chunked(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, chunks: Chunks, state: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """state: (B, G, H/G, n, p) before the first token, None for zero → outputs, and the state after the last token
    where it is to be kept."""
    value, key, query = chunks.cut(by_group(v, q)), chunks.cut(k)[:, :, None], chunks.cut(q)[:, :, None]
    total = chunks.cut(by_group(decay, q)[..., None]).cumsum(dim=-2)
    out = (query @ key.transpose(-1, -2) * pairwise(total)) @ value
    left = chunks.count if keep else chunks.count - 1
    before = [] if state is None else [state]
    if left:
        faded = (total[..., -1:, :] - total).exp() * value
        added = key[:, :, :, :left].transpose(-1, -2) @ faded[:, :, :, :left]
        before += carry(added, total[:, :, :, :left, -1:].exp(), state)
    final = before.pop() if keep else None
    if before:
        # Without a state the first chunk has nothing before it to read.
        skipped = chunks.count - len(before)
        read = query[:, :, :, skipped:] @ torch.stack(before, dim=3) * total[:, :, :, skipped:].exp()
        out = out + F.pad(read, (0, 0, 0, 0, skipped, 0))
    return chunks.join(out).flatten(1, 2), final


def carry(added: Tensor, factor: Tensor, state: Tensor | None) -> list[Tensor]:
    """S_i = factor_i S_{i−1} + added_i over the chunks, dimension 3."""
    states: list[Tensor] = []
    for new, fading in zip(added.unbind(3), factor.unbind(3), strict=True):
        state = new if state is None else fading * state + new
        states.append(state)
    return states


def pairwise(total: Tensor) -> Tensor:
    """total: (…, C, 1), decay summed up to each token → (…, C, C), exp(total_i − total_j) for j ≤ i, 0 beyond."""
    difference = total - total.transpose(-1, -2)
    later = torch.ones(difference.shape[-2:], dtype=torch.bool, device=total.device).triu(1)
    # Before the exponential, which would overflow there.
    return difference.masked_fill(later, float("-inf")).exp()
