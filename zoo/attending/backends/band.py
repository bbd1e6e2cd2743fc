"""Sliding-window attention without the T × T square: each block of W queries against its own and the previous block of
keys."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.attending import fused
from zoo.attending.blocks import fold, is_banded, unfold, with_previous
from zoo.attending.visible import Needs, Scoring, Visible
from zoo.settings.axis import number

RANK, KERNEL, HOOKED = 3, False, False


def obstacle(needs: Needs) -> str | None:
    if needs.window is None or needs.pattern or not needs.aligned or not needs.plain_scores:
        return "needs a window over unpadded, uncached text, and plain scores"
    return fused.obstacle(needs)


def pays(_device: str, _dtype: torch.dtype, needs: Needs) -> bool:
    return is_banded(needs.queries, needs.window)


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    window, length = number(visible.window), q.shape[2]
    blocks = -(-length // window)
    q, k, v = (F.pad(x, (0, 0, 0, blocks * window - length)) for x in (q, k, v))
    q, k, v = (x.unflatten(2, (blocks, window)) for x in (q, k, v))  # (B, H, N, W, d)
    q, k, v = fold(q), fold(with_previous(k)), fold(with_previous(v))  # (B·N, H, W, d), keys and values 2W long
    # Block 0 has no previous block: its first W keys are zero padding.
    place = torch.arange(window, device=q.device)
    keys = torch.arange(-window, window, device=q.device)
    distance = place[:, None] - keys
    seen = (distance >= 0) & (distance < window)
    first = seen & (keys >= 0)
    mask = torch.stack([first, *[seen] * (blocks - 1)]).repeat(q.shape[0] // blocks, 1, 1)[:, None]
    return unfold(fused.sdpa(q, k, v, mask, False, scoring), blocks)[:, :, :length]
