"""softmax(score(Q, K) + mask) V, by the fastest backend that can do what the spec asks.

`plain` is the reference: two matrix products and a softmax in float32. Every other backend is tested against it, and
one that cannot do what is asked raises instead of leaving something out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.precision import at_default_precision

_forced: list[str] = []
"""Backends forced by open `attention_backend` blocks, the innermost last. torch.compile cannot trace a ContextVar."""


@dataclass(frozen=True)
class Visible:
    """Which keys a query sees: those at its own place in the stream or before it, at most `window` counting itself.

    queries: (T,), keys: (S,) places in the stream; an empty cache slot has a negative place.
    left_pad: (B,) or None; a row's keys before it are padding. Padding sees padding, so that no row of scores is empty.
    """

    queries: Tensor
    keys: Tensor
    window: int | None = None
    left_pad: Tensor | None = None

    @property
    def aligned(self) -> bool:
        """Whether queries and keys are the same unpadded stretch of text, so that the mask is a plain triangle or
        band."""
        return self.keys is self.queries and self.left_pad is None

    @property
    def everything(self) -> bool:
        """Whether no mask is needed. A cache hands a single query only the slots that it may see."""
        return self.queries.shape[0] == 1 and self.left_pad is None

    def mask(self) -> Tensor:
        """True where the key is seen: (T, S), or (B, 1, T, S) with padding."""
        distance = self.queries[:, None] - self.keys
        seen = (distance >= 0) & (self.keys >= 0)
        if self.window is not None:
            seen &= distance < self.window
        if self.left_pad is None:
            return seen
        pad = self.left_pad[:, None, None]
        return (seen & ((self.keys >= pad) | (self.queries[:, None] < pad)))[:, None]


@dataclass(frozen=True)
class Scoring:
    """How scores come from queries and keys: softcap(QKᵀ · scale + bias), and what else the softmax counts.

    softcap: c · tanh(z / c) (Gemma 2, arXiv:2408.00118), before the mask. bias: (H, T, S) or (B, H, T, S),
    or what broadcasts to it.
    sinks: (H,), a logit per head that takes its share of the softmax and gives no value (gpt-oss, arXiv:2508.10925).
    dropout: probability that a weight is dropped.
    """

    scale: float
    softcap: float | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None
    dropout: float = 0.0

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
    backend = BACKENDS[_forced[-1] if _forced else _best(q, visible, scoring)]
    return at_default_precision(lambda q, k, v: backend(q, k, v, visible, scoring), q, k, v)


def _best(q: Tensor, visible: Visible, scoring: Scoring) -> str:
    if not scoring.fusible:
        return "plain"
    banded = visible.aligned and visible.window is not None and 2 * visible.window <= q.shape[2]
    return "band" if banded and scoring.simple else "fused"


@contextmanager
def attention_backend(name: str) -> Iterator[None]:
    """Force a backend inside the block: `plain`, `fused` or `band`. One that cannot do what a spec asks raises."""
    if name not in BACKENDS:
        raise ValueError(f"unknown attention backend '{name}': one of {', '.join(BACKENDS)}")
    _forced.append(name)
    try:
        yield
    finally:
        _forced.pop()


def plain(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """The reference. Softmax in float32."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = (q @ k.transpose(-1, -2)).float() * scoring.scale
    if scoring.bias is not None:
        scores = scores + scoring.bias
    if scoring.softcap is not None:
        scores = scoring.softcap * torch.tanh(scores / scoring.softcap)
    scores = scores.masked_fill(~visible.mask(), float("-inf"))
    if scoring.sinks is not None:
        sink = scoring.sinks.float()[:, None, None].expand(*scores.shape[:-1], 1)
        weights = torch.cat((scores, sink), dim=-1).softmax(dim=-1)[..., :-1]
    else:
        weights = scores.softmax(dim=-1)
    return F.dropout(weights, scoring.dropout).to(v.dtype) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """torch's scaled_dot_product_attention, with a mask where a triangle is not enough."""
    if not scoring.fusible:
        raise ValueError("the fused backend has no softcap, no sinks and no learned bias: use plain")
    triangle = visible.aligned and (visible.window is None or visible.window >= q.shape[2]) and scoring.bias is None
    mask = None if triangle or (visible.everything and scoring.bias is None) else visible.mask()
    if mask is not None and scoring.bias is not None:
        mask = torch.where(mask, scoring.bias, float("-inf")).to(q.dtype)
        # Four dimensions, or the kernels fall back to their slow path.
        mask = mask if mask.dim() == 4 else mask[None]
    return _sdpa(q, k, v, mask, triangle, scoring)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, triangle: bool, scoring: Scoring) -> Tensor:
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
    if window is None or not visible.aligned or not scoring.simple:
        raise ValueError("the band backend needs a window over unpadded, uncached text, and plain scores")
    blocks = -(-length // window)
    q, k, v = (F.pad(x, (0, 0, 0, blocks * window - length)) for x in (q, k, v))
    q, k, v = (x.unflatten(2, (blocks, window)) for x in (q, k, v))
    q, k, v = _fold(q), _fold(_with_previous(k)), _fold(_with_previous(v))
    # Block 0 has no previous block: its first W keys are zero padding.
    place = torch.arange(window, device=q.device)
    keys = torch.arange(-window, window, device=q.device)
    distance = place[:, None] - keys
    seen = (distance >= 0) & (distance < window)
    first = seen & (keys >= 0)
    mask = torch.stack([first, *[seen] * (blocks - 1)]).repeat(q.shape[0] // blocks, 1, 1)[:, None]
    return _unfold(_sdpa(q, k, v, mask, False, scoring), blocks)[:, :, :length]


def _fold(x: Tensor) -> Tensor:
    """(B, H, N, W, d) → (B·N, H, W, d)."""
    return x.transpose(1, 2).flatten(0, 1)


def _unfold(x: Tensor, blocks: int) -> Tensor:
    """(B·N, H, W, d) → (B, H, N·W, d)."""
    out: Tensor = x.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(2, 3)
    return out


def _with_previous(x: Tensor) -> Tensor:
    """(B, K, N, W, d) → (B, K, N, 2W, d): each block behind the one before it, zeros before the first."""
    previous = F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1]
    return torch.cat((previous, x), dim=3)


Backend = Callable[[Tensor, Tensor, Tensor, Visible, Scoring], Tensor]
BACKENDS: dict[str, Backend] = {"plain": plain, "fused": fused, "band": band}
