"""Sparse attention without the T × T square, by the pattern's own algorithm."""

from __future__ import annotations

import torch
from torch import Tensor

from zoo.attending import fused
from zoo.attending.visible import Needs, Scoring, Visible

RANK, KERNEL, HOOKED = 2, False, False


def obstacle(needs: Needs) -> str | None:
    if not needs.pattern or needs.window is not None or not needs.aligned or not needs.plain_scores:
        return "needs a pattern over unpadded, uncached text, and plain scores"
    return fused.obstacle(needs)


def pays(_device: str, _dtype: torch.dtype, _needs: Needs) -> bool:
    return True


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Visible, scoring: Scoring) -> Tensor:
    assert visible.pattern is not None  # see `obstacle`
    return visible.pattern.attend(q, k, v, scoring)
