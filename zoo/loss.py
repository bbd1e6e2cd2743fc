"""Next-token loss."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

IGNORED = -100
LOGITS_AT_ONCE = 2**28
"""At most so many logits are held at a time: 1 GiB in float32. Beyond it the head runs in chunks, twice each."""

ReadOut = Callable[[Tensor], Tensor]


def next_token_loss(
    read_out: ReadOut, hidden: Tensor, targets: Tensor, z_loss: float = 0.0, chunks: int = 1
) -> tuple[Tensor, Tensor]:
    """(objective, nats per token), means over the targets that are not −100, in float32.

    hidden: (B, T, D), read_out: (N, D) → logits (N, V), targets: (B, T).
    objective = nats + z_loss · mean(logsumexp(logits)²); the z-loss is PaLM's, arXiv:2204.02311 §5.
    """
    nats, squares = summed_loss(read_out, hidden, targets, z_loss, chunks)
    count = (targets != IGNORED).sum()
    return (nats + z_loss * squares) / count, nats / count


def summed_loss(
    read_out: ReadOut, hidden: Tensor, targets: Tensor, z_loss: float = 0.0, chunks: int = 1
) -> tuple[Tensor, Tensor]:
    """Sums over the targets that count: negative log-likelihoods, and squares of logsumexp where they are wanted."""
    rows, goals = hidden.flatten(0, -2), targets.flatten()
    if chunks == 1:
        return _sums(read_out, rows, goals, z_loss)
    pairs = zip(rows.chunk(chunks), goals.chunk(chunks), strict=True)
    parts = [checkpoint(_sums, read_out, row, goal, z_loss, use_reentrant=False) for row, goal in pairs]
    nats, squares = (torch.stack(part).sum() for part in zip(*parts, strict=True))
    return nats, squares


def chunks_for(rows: int, vocabulary: int) -> int:
    """In how many chunks the head must run to hold no more than LOGITS_AT_ONCE logits at a time."""
    return max(1, math.ceil(rows * vocabulary / LOGITS_AT_ONCE))


def _sums(read_out: ReadOut, rows: Tensor, goals: Tensor, z_loss: float) -> tuple[Tensor, Tensor]:
    """`summed_loss` of one chunk."""
    logits = read_out(rows).float()
    nats = F.cross_entropy(logits, goals, ignore_index=IGNORED, reduction="sum")
    if not z_loss:
        return nats, torch.zeros_like(nats)
    return nats, logits.logsumexp(dim=-1).square().masked_fill(goals == IGNORED, 0.0).sum()
