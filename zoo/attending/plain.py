"""The reference: two matrix products and a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.attending.blocks import by_group, by_head
from zoo.attending.visible import Needs, Scoring, Visible
from zoo.kernels.precision import in_float32

RANK, KERNEL, HOOKED = 5, False, False

# Attention scores by their definition, in float32 or more, for the reference backend and for probes.

SCORES_AT_ONCE = 2**26
"""Most scores that a probe holds at a time, 256 MiB in float32; the fused backend never holds any."""


def scores_of(q: Tensor, k: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """Scores that the softmax normalises, (B, H, T, S), −inf for masked keys. Call it through `in_float32`."""
    heads = q.shape[1]
    scores = by_head(by_group(q, k.shape[1]) @ k.transpose(-1, -2), heads) * scoring.scale
    return masked(scores, visible, scoring)


def masked(scores: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """QKᵀ · scale with bias and softcap, and −inf for masked keys."""
    if scoring.bias is not None:
        scores = scores + scoring.bias
    if scoring.softcap is not None:
        scores = scoring.softcap * torch.tanh(scores / scoring.softcap)
    return scores.masked_fill(~visible.mask(), float("-inf"))


def with_sinks(scores: Tensor, scoring: Scoring) -> Tensor:
    """scores: (B, H, T, S) → (B, H, T, S + 1), with the sinks as last column; unchanged without sinks."""
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
    """(H,): −Σ p log p in nats over a query's keys and sink, averaged over all rows and queries. Zhai et al. 2023,
    arXiv:2303.06296. A head that attends uniformly has the mean over queries of log(keys seen)."""
    parts = [
        torch.special.entr(with_sinks(scores, scoring).softmax(dim=-1)).sum(dim=(0, 2, 3))
        for scores in _in_pieces(q, k, visible, scoring)
    ]
    return torch.stack(parts).sum(dim=0) / (q.shape[0] * q.shape[2])


def weights_of(q: Tensor, k: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """(B, H, T, S): attention weights in float32 or more. With sinks a row sums to less than 1."""
    parts = [with_sinks(scores, scoring).softmax(dim=-1) for scores in _in_pieces(q, k, visible, scoring)]
    return torch.cat(parts, dim=2)[..., : k.shape[2]]


def _in_pieces(q: Tensor, k: Tensor, visible: Visible, scoring: Scoring) -> Iterator[Tensor]:
    """`scores_of` consecutive pieces of the queries."""
    rows = max(1, SCORES_AT_ONCE // (q.shape[0] * q.shape[1] * k.shape[2]))
    for start in range(0, q.shape[2], rows):
        piece = slice(start, start + rows)
        bias = scoring.bias
        if bias is not None and bias.shape[-2] > 1:
            bias = bias[..., piece, :]
        seen = replace(visible, queries=visible.queries[piece])
        yield in_float32(partial(scores_of, visible=seen, scoring=replace(scoring, bias=bias)), q[:, :, piece], k)


def obstacle(needs: Needs) -> str | None:
    """None: the reference supports everything."""
    return None


def pays(_device: str, _dtype: torch.dtype, _needs: Needs) -> bool:
    return True


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    """Reference attention, in float32 or more, as in fused kernels: rounded scores would add a difference between
    arms."""

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = with_sinks(scores_of(q, k, visible, scoring), scoring).softmax(dim=-1)
        weights = F.dropout(weights[..., : k.shape[2]], scoring.dropout)
        return by_head(by_group(weights, v.shape[1]) @ v, q.shape[1])

    return in_float32(mix, q, k, v).to(v.dtype)
