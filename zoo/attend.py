"""softmax(score(Q, K) + mask) V, by the fastest backend that can do what the spec asks.

`plain` is the reference: two matrix products and a softmax, all in float32. Every other backend is tested against it,
and one that cannot do what is asked raises instead of leaving something out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.precision import at_default_precision, in_float32
from zoo.site import Sight, Step, Tap

SCORES_AT_ONCE = 2**26
"""Whoever looks at scores holds at most so many at a time, 256 MiB in float32: the fused backend never has them."""

_forced: list[str] = []
"""Backends forced by open `attention_backend` blocks, the innermost last. torch.compile cannot trace a ContextVar."""


class Pattern(Protocol):
    """A pattern of `zoo.sparsities`."""

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor: ...

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor: ...


@dataclass(frozen=True)
class Visible:
    """Which keys a query sees: those at its own place in the stream or before it, at most `window` counting itself.

    queries: (T,), keys: (S,) places in the stream; an empty cache slot has a negative place.
    left_pad: (B,) or None; a row's keys before it are padding. Padding sees padding, so that no row of scores is empty.
    sight: with `all`, places after the query are seen too; with `prefix` those before `prefix_ends`: (B,) or None.
    ends: (B,) or None; a row's keys from there on are padding.
    pattern: says which of these keys are seen, by places in the row's own text.
    """

    queries: Tensor
    keys: Tensor
    window: int | None = None
    left_pad: Tensor | None = None
    sight: Sight = "causal"
    prefix_ends: Tensor | None = None
    ends: Tensor | None = None
    pattern: Pattern | None = None

    @classmethod
    def to(cls, step: Step, keys: Tensor, window: int | None = None, pattern: Pattern | None = None) -> Visible:
        """What the tokens of a pass see of the keys at places `keys`: (S,)."""
        return cls(step.index, keys, window, step.left_pad, step.sight, step.prefix_ends, step.ends, pattern)

    @property
    def backward(self) -> bool:
        """Whether a query sees nothing after itself."""
        return self.sight != "all" and self.prefix_ends is None

    @property
    def padded(self) -> bool:
        return self.left_pad is not None or self.ends is not None

    @property
    def aligned(self) -> bool:
        """Whether queries and keys are the same unpadded stretch of text, so that the mask is a plain triangle or
        band."""
        return self.keys is self.queries and self.backward and not self.padded

    @property
    def everything(self) -> bool:
        """Whether no mask is needed. A cache hands a single query only the slots that it may see, but for compiled
        programs (`TokenCache`)."""
        alone = self.queries.shape[0] == 1 and self.backward and not torch.compiler.is_compiling()
        return not self.padded and (alone or self.sight == "all")

    def mask(self) -> Tensor:
        """True where the key is seen: (T, S), or (B, 1, T, S) where rows differ."""
        queries = self.queries[:, None]
        distance = queries - self.keys
        seen = (self.keys >= 0) & ((distance >= 0) | (self.sight == "all"))
        if self.window is not None:
            seen &= distance < self.window
        if self.pattern is not None:
            begin = 0 if self.left_pad is None else self.left_pad[:, None, None]
            seen = seen & self.pattern.sees(queries - begin, self.keys - begin)
        if self.prefix_ends is not None:
            seen = seen | ((self.keys >= 0) & (self.keys < self.prefix_ends[:, None, None]))
        if self.left_pad is not None:
            pad = self.left_pad[:, None, None]
            seen = seen & ((self.keys >= pad) | (queries < pad))
        if self.ends is not None:
            end = self.ends[:, None, None]
            seen = seen & ((self.keys < end) | (queries >= end))
        return seen if seen.dim() == 2 else seen[:, None]

    def places_seen(self) -> Tensor:
        """Of a single query of unpadded text: indices of the keys that it sees."""
        return self.mask()[0].nonzero()[:, 0]


@dataclass(frozen=True)
class Scoring:
    """How scores come from queries and keys: softcap(QKᵀ · scale + bias), and what else the softmax counts.

    softcap: c · tanh(z / c) (Gemma 2, arXiv:2408.00118), before the mask. bias: (H, T, S) or (B, H, T, S),
    or what broadcasts to it.
    sinks: (H,), a logit per head that takes its share of the softmax and gives no value (gpt-oss, arXiv:2508.10925).
    dropout: probability that a weight is dropped. tap: offered the scores' largest value, their entropy and the
    weights, whatever the backend (see `largest_scores`, `entropies` and `weights_of`).
    """

    scale: float
    softcap: float | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None
    dropout: float = 0.0
    tap: Tap | None = None

    @property
    def simple(self) -> bool:
        """Whether scores are QKᵀ · scale and nothing else."""
        return self.softcap is None and self.bias is None and self.sinks is None

    @property
    def fusible(self) -> bool:
        """Whether torch's fused kernels can do it: they take a constant bias, no cap and no sinks."""
        constant = self.bias is None or not self.bias.requires_grad
        return self.softcap is None and self.sinks is None and constant


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """q: (B, H, T, d), k: (B, K, S, d), v: (B, K, S, e) with K dividing H → (B, H, T, e)."""
    if scoring.tap is not None:
        scoring.tap("mixer.max_logit", lambda: largest_scores(q, k, visible, scoring))
        scoring.tap("mixer.entropy", lambda: entropies(q, k, visible, scoring))
        scoring.tap("mixer.weights", lambda: weights_of(q, k, visible, scoring))
    backend = BACKENDS[_forced[-1]] if _forced else fastest(q, visible, scoring)
    return at_default_precision(lambda q, k, v: backend(q, k, v, visible, scoring), q, k, v)


def fastest(q: Tensor, visible: Visible, scoring: Scoring) -> Backend:
    """The backend that takes the least work of those that can do it."""
    if not scoring.fusible:
        return plain
    if visible.pattern is not None:
        return sparse if visible.aligned and scoring.simple else fused
    return band if visible.aligned and scoring.simple and is_banded(q.shape[2], visible.window) else fused


def is_banded(length: int, window: int | None) -> bool:
    """Whether a window is so much shorter than the text that blocks of it take less than the square."""
    return window is not None and 2 * window <= length


def scores_computed(length: int, window: int | None = None) -> int:
    """How many scores of a head the fastest backend computes for a whole text with a window, or none."""
    if window is None or not is_banded(length, window):
        return length**2
    return -(-length // window) * window * 2 * window


@contextmanager
def attention_backend(name: str) -> Iterator[None]:
    """Force a backend inside the block: one of `BACKENDS`. One that cannot do what a spec asks raises."""
    if name not in BACKENDS:
        raise ValueError(f"unknown attention backend '{name}': one of {', '.join(BACKENDS)}")
    _forced.append(name)
    try:
        yield
    finally:
        _forced.pop()


def plain(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """The reference, in float32 or more as fused kernels compute: rounded scores would be a difference between arms."""

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
        weights = with_sinks(scores_of(q, k, visible, scoring), scoring).softmax(dim=-1)
        return F.dropout(weights[..., : k.shape[2]], scoring.dropout) @ v

    return in_float32(mix, q, k, v).to(v.dtype)


def scores_of(q: Tensor, k: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """What the softmax reads of the keys, −inf for those that are not seen: (B, H, T, S). To be called `in_float32`."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = q @ k.transpose(-1, -2) * scoring.scale
    if scoring.bias is not None:
        scores = scores + scoring.bias
    if scoring.softcap is not None:
        scores = scoring.softcap * torch.tanh(scores / scoring.softcap)
    return scores.masked_fill(~visible.mask(), float("-inf"))


def with_sinks(scores: Tensor, scoring: Scoring) -> Tensor:
    """scores: (B, H, T, S), with a last column for the sinks where there are any."""
    if scoring.sinks is None:
        return scores
    sink = scoring.sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat((scores, sink), dim=-1)


def largest_scores(q: Tensor, k: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """(H,): the largest score that a head gives to a key, with scale, bias and softcap, over all rows and queries.
    Dehghani et al. 2023, arXiv:2302.05442, saw it grow without bound before training diverged."""
    parts = [scores.amax(dim=(0, 2, 3)) for scores in _in_pieces(q, k, visible, scoring)]
    return torch.stack(parts).amax(dim=0)


def entropies(q: Tensor, k: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """(H,): −Σ p log p in nats over what a query attends to, a sink included, meaned over all rows and queries. Zhai et
    al. 2023, arXiv:2303.06296. A head that attends evenly has the mean over queries of log(keys seen)."""
    parts = [
        torch.special.entr(with_sinks(scores, scoring).softmax(dim=-1)).sum(dim=(0, 2, 3))
        for scores in _in_pieces(q, k, visible, scoring)
    ]
    return torch.stack(parts).sum(dim=0) / (q.shape[0] * q.shape[2])


def weights_of(q: Tensor, k: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """(B, H, T, S): how much each query attends to each key, float32. With sinks a row sums to less than 1."""
    parts = [with_sinks(scores, scoring).softmax(dim=-1) for scores in _in_pieces(q, k, visible, scoring)]
    return torch.cat(parts, dim=2)[..., : k.shape[2]]


def _in_pieces(q: Tensor, k: Tensor, visible: Visible, scoring: Scoring) -> Iterator[Tensor]:
    """`scores_of` stretches of the queries."""
    rows = max(1, SCORES_AT_ONCE // (q.shape[0] * q.shape[1] * k.shape[2]))
    for start in range(0, q.shape[2], rows):
        piece = slice(start, start + rows)
        bias = scoring.bias
        if bias is not None and bias.shape[-2] > 1:
            bias = bias[..., piece, :]
        seen = replace(visible, queries=visible.queries[piece])
        yield in_float32(partial(scores_of, visible=seen, scoring=replace(scoring, bias=bias)), q[:, :, piece], k)


def fused(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """torch's scaled_dot_product_attention, with a mask where a triangle is not enough."""
    if not scoring.fusible:
        raise ValueError("the fused backend has no softcap, no sinks and no learned bias: use plain")
    whole = visible.pattern is None and (visible.window is None or visible.window >= q.shape[2])
    triangle = visible.aligned and whole and scoring.bias is None
    mask = None if triangle or (visible.everything and scoring.bias is None) else visible.mask()
    if mask is not None and scoring.bias is not None:
        mask = torch.where(mask, scoring.bias, float("-inf")).to(q.dtype)
        # Four dimensions, or the kernels fall back to their slow path.
        mask = mask if mask.dim() == 4 else mask[None]
    return sdpa(q, k, v, mask, triangle, scoring)


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, triangle: bool, scoring: Scoring) -> Tensor:
    grouped = k.shape[1] != q.shape[1]
    if grouped and mask is not None and q.is_cuda:
        # CUDA's fused kernels that take a mask do not take grouped heads.
        groups, grouped = q.shape[1] // k.shape[1], False
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    causal = triangle and q.shape[2] > 1
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=scoring.dropout, is_causal=causal, scale=scoring.scale, enable_gqa=grouped
    )


def band(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """Sliding window without the square: blocks of W queries, each against its own and the previous block of keys."""
    window, length = visible.window, q.shape[2]
    if window is None or visible.pattern is not None or not visible.aligned or not scoring.simple:
        raise ValueError("the band backend needs a window over unpadded, uncached text, and plain scores")
    blocks = -(-length // window)
    q, k, v = (F.pad(x, (0, 0, 0, blocks * window - length)) for x in (q, k, v))
    q, k, v = (x.unflatten(2, (blocks, window)) for x in (q, k, v))
    q, k, v = fold(q), fold(with_previous(k)), fold(with_previous(v))
    # Block 0 has no previous block: its first W keys are zero padding.
    place = torch.arange(window, device=q.device)
    keys = torch.arange(-window, window, device=q.device)
    distance = place[:, None] - keys
    seen = (distance >= 0) & (distance < window)
    first = seen & (keys >= 0)
    mask = torch.stack([first, *[seen] * (blocks - 1)]).repeat(q.shape[0] // blocks, 1, 1)[:, None]
    return unfold(sdpa(q, k, v, mask, False, scoring), blocks)[:, :, :length]


def sparse(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """A pattern without the square, as the pattern itself computes it."""
    if visible.pattern is None or visible.window is not None or not visible.aligned or not scoring.simple:
        raise ValueError("the sparse backend needs a pattern over unpadded, uncached text, and plain scores")
    return visible.pattern.attend(q, k, v, scoring)


def fold(x: Tensor) -> Tensor:
    """(B, H, N, W, d) → (B·N, H, W, d)."""
    return x.transpose(1, 2).flatten(0, 1)


def unfold(x: Tensor, blocks: int) -> Tensor:
    """(B·N, H, W, d) → (B, H, N·W, d)."""
    out: Tensor = x.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(2, 3)
    return out


def with_previous(x: Tensor) -> Tensor:
    """(…, N, W, d) → (…, N, 2W, d): each block behind the one before it, zeros before the first."""
    previous = F.pad(x, (0, 0, 0, 0, 1, 0))[..., :-1, :, :]
    return torch.cat((previous, x), dim=-2)


Backend = Callable[[Tensor, Tensor, Tensor, Visible, Scoring], Tensor]
BACKENDS: dict[str, Backend] = {"plain": plain, "fused": fused, "band": band, "sparse": sparse}
