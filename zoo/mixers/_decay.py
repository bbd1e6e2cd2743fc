"""Data-dependent decay of a head's state."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SLOWEST, FASTEST = 1.0, 16.0
"""Range of the heads' initial rates A (Mamba-2)."""
SHORTEST, LONGEST = 1e-3, 1e-1
"""Range of the heads' initial steps Δ for an input of 0 (Mamba, arXiv:2312.00752)."""


def even(count: int) -> Tensor:
    """Evenly spaced numbers in (0, 1), ascending: (count,), float64."""
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def first_rates(count: int) -> Tensor:
    """log A, with A evenly spaced in [1, 16]: (count,)."""
    return (SLOWEST + even(count) * (FASTEST - SLOWEST)).log().float()


def first_steps(count: int) -> Tensor:
    """b with softplus(b) evenly spaced on a log scale in [0.001, 0.1], shuffled: (count,)."""
    shuffled = (torch.arange(count, dtype=torch.float64) * (math.sqrt(5) - 1) / 2 + 0.5) % 1
    step = (math.log(SHORTEST) + shuffled * math.log(LONGEST / SHORTEST)).exp()
    # The inverse of softplus.
    return (step + torch.log(-torch.expm1(-step))).float()


class Decay(nn.Module):
    """raw: (B, T, H) → Δ = softplus(raw + b) and log decay −A·Δ, A = exp(a): both (B, H, T), float32 or wider.

    Initial values are spaced, not drawn: A evenly in [1, 16], Δ evenly on a log scale in [0.001, 0.1] and shuffled. Δ
    is clamped to [least, most].
    """

    roles: ClassVar = {"log_rate": "bias", "step_bias": "bias"}

    def __init__(self, heads: int, least: float = 0.0, most: float | None = None) -> None:
        super().__init__()
        self.least, self.most = least, most
        self.initial = {"log_rate": first_rates(heads), "step_bias": first_steps(heads)}
        self.log_rate = nn.Parameter(self.initial["log_rate"].clone())
        self.step_bias = nn.Parameter(self.initial["step_bias"].clone())

    def forward(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        kind = torch.promote_types(raw.dtype, torch.float32)
        step = F.softplus(raw.to(kind) + self.step_bias.to(kind)).transpose(1, 2)
        if self.least or self.most is not None:
            step = step.clamp(self.least, self.most)
        return step, -self.log_rate.to(kind).exp()[:, None] * step


class ChannelDecay(nn.Module):
    """raw: (B, T, H·n) → log decay (B, H, T, n), float32 or wider: −A softplus(raw + b), or floor · σ(A (raw + b)) with
    a floor, its lower bound. A = exp(a) is one number per head, b one per feature."""

    roles: ClassVar = {"log_rate": "bias", "step_bias": "bias"}

    def __init__(self, heads: int, features: int, floor: float | None) -> None:
        super().__init__()
        self.heads, self.floor = heads, floor
        self.initial = {"log_rate": first_rates(heads), "step_bias": first_steps(heads * features)}
        self.log_rate = nn.Parameter(self.initial["log_rate"].clone())
        self.step_bias = nn.Parameter(self.initial["step_bias"].clone())

    def forward(self, raw: Tensor) -> Tensor:
        kind = torch.promote_types(raw.dtype, torch.float32)
        moved = (raw.to(kind) + self.step_bias.to(kind)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        rate = self.log_rate.to(kind).exp()[:, None, None]
        return -rate * F.softplus(moved) if self.floor is None else self.floor * torch.sigmoid(rate * moved)


# Scores of queries and keys within a chunk, each multiplied by the decay between the two tokens.


def decayed_scores(q: Tensor, k: Tensor, total: Tensor, rank: int = 1) -> Tensor:
    """Σ_f q_if k_jf exp(total_if − total_jf) for j ≤ i, else 0: (…, C, C).

    q, k: (…, C, n). total: the log decay summed up to each token, ≤ 0 and falling: (…, C, 1), or (…, C, n) with one per
    feature. With a rank (and one decay for all features), a token is `rank` rows of equal total, which see each other.
    """
    if total.shape[-1] == 1:
        return q @ k.transpose(-1, -2) * pairwise(total, rank)
    # A single product of q_i ⊙ exp(total_i) and k_j ⊙ exp(−total_j) would overflow. So for a token i in the second half
    # of a block and a token j in the first, the decay is split at m, the last token of the first half: exp(total_i −
    # total_m) and exp(total_m − total_j) are both at most 1. Blocks double from one token to C, a power of two; every
    # pair occurs once.
    block, length = 1, q.shape[-2]
    products = (q * k).sum(-1)[..., None, None]  # the blocks on the diagonal: (…, C/b, b, b)
    while block < length:
        early, late = _halves(total, block)
        middle = early[..., -1:, :]
        queries = _halves(q, block)[1] * (late - middle).exp()
        keys = _halves(k, block)[0] * (middle - early).exp()
        products = assembled(products, queries @ keys.transpose(-1, -2))
        block *= 2
    return products[..., 0, :, :]


def pairwise(total: Tensor, rank: int = 1) -> Tensor:
    """total: (…, C, 1) → (…, C, C), exp(total_i − total_j) for j ≤ i, else 0; i and j count tokens of `rank` rows."""
    difference = total - total.transpose(-1, -2)
    tokens = difference.shape[-1] // rank
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=total.device).triu(1)
    if rank > 1:
        later = later.repeat_interleave(rank, dim=0).repeat_interleave(rank, dim=1)
    # Mask before the exponential, which would overflow for later tokens.
    return difference.masked_fill(later, float("-inf")).exp()


def _halves(x: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(…, C, n) → first and second half of each block of 2b tokens: (…, C/2b, b, n) each."""
    first, second = x.unflatten(-2, (-1, 2, block)).unbind(-3)
    return first, second


def assembled(diagonal: Tensor, corner: Tensor) -> Tensor:
    """diagonal: (…, 2m, b, b), corner: (…, m, b, b) → (…, m, 2b, 2b): [[A, 0], [corner, B]] for each pair of blocks A,
    B on the diagonal."""
    first, second = diagonal[..., 0::2, :, :], diagonal[..., 1::2, :, :]
    upper = torch.cat((first, torch.zeros_like(first)), dim=-1)
    return torch.cat((upper, torch.cat((corner, second), dim=-1)), dim=-2)


def decayed_score_flops(channels: bool, heads: int, groups: int, features: int, width: int) -> float:
    """FLOPs of `decayed_scores` for one chunk of C = `width` tokens: a whole matrix per group or, with decays per
    feature, C/2b products of b × b per head for each of b = 1, 2, … C/2."""
    one_by_one = channels and features > 1
    return features * (heads * width * (width - 1.0) if one_by_one else 2.0 * groups * width**2)
