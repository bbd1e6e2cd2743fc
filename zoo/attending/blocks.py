"""Reshaping of texts into blocks, and of heads into groups."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def is_banded(length: int, window: int | None) -> bool:
    """Whether a window is at most half the text, so that computing by blocks is cheaper than the full square."""
    return window is not None and 2 * window <= length


def scores_computed(length: int, window: int | None = None) -> int:
    """Attention scores per head that the fastest backend computes for a text of `length` tokens."""
    if window is None or not is_banded(length, window):
        return length**2
    return -(-length // window) * window * 2 * window


def by_group(x: Tensor, groups: int) -> Tensor:
    """(B, H, T, d) → (B, K, H/K·T, d): stacks the queries of heads that share keys as those of one head, so that keys
    and values need not be repeated."""
    together: Tensor = x.unflatten(1, (groups, -1)).flatten(2, 3)
    return together


def by_head(x: Tensor, heads: int) -> Tensor:
    """(B, K, H/K·T, d) → (B, H, T, d): the inverse of `by_group`."""
    apart: Tensor = x.unflatten(2, (heads // x.shape[1], -1)).flatten(1, 2)
    return apart


def fold(x: Tensor) -> Tensor:
    """(B, H, N, W, d) → (B·N, H, W, d)."""
    return x.transpose(1, 2).flatten(0, 1)


def unfold(x: Tensor, blocks: int) -> Tensor:
    """(B·N, H, W, d) → (B, H, N·W, d)."""
    out: Tensor = x.unflatten(0, (-1, blocks)).transpose(1, 2).flatten(2, 3)
    return out


def with_previous(x: Tensor) -> Tensor:
    """(…, N, W, d) → (…, N, 2W, d): each block preceded by the block before it; zeros before the first."""
    previous = F.pad(x, (0, 0, 0, 0, 1, 0))[..., :-1, :, :]
    return torch.cat((previous, x), dim=-2)
