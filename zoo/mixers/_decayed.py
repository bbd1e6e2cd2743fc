"""Scores of queries and keys within a chunk, each multiplied by the decay between the two tokens."""

from __future__ import annotations

import torch
from torch import Tensor


def decayed_scores(q: Tensor, k: Tensor, total: Tensor, rank: int = 1) -> Tensor:
    """Σ_f q_if k_jf exp(total_if − total_jf) for j ≤ i, else 0: (…, C, C).

    q, k: (…, C, n). total: the log decay summed up to each token, ≤ 0 and falling: (…, C, 1), or (…, C, n) with one per
    feature. With a rank (and one decay for all features), a token is `rank` rows of equal total, which see each other.
    """
    if total.shape[-1] == 1:
        return q @ k.transpose(-1, -2) * pairwise(total, rank)
    return _by_halves(q, k, total)


def pairwise(total: Tensor, rank: int = 1) -> Tensor:
    """total: (…, C, 1) → (…, C, C), exp(total_i − total_j) for j ≤ i, else 0; i and j count tokens of `rank` rows."""
    difference = total - total.transpose(-1, -2)
    tokens = difference.shape[-1] // rank
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=total.device).triu(1)
    if rank > 1:
        later = later.repeat_interleave(rank, dim=0).repeat_interleave(rank, dim=1)
    # Mask before the exponential, which would overflow for later tokens.
    return difference.masked_fill(later, float("-inf")).exp()


def _by_halves(q: Tensor, k: Tensor, total: Tensor) -> Tensor:
    """(…, C, n) each, C a power of two → (…, C, C).

    A single product of q_i ⊙ exp(total_i) and k_j ⊙ exp(−total_j) would overflow. So for a token i in the second half
    of a block and a token j in the first, the decay is split at m, the last token of the first half: exp(total_i −
    total_m) and exp(total_m − total_j) are both at most 1. Blocks double from one token to C; every pair occurs once.
    """
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
