"""FLOPs as torch counts them, independently of what is declared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from zoo.conv import ShortConv


class Count:
    """total: FLOPs of the products of matrices and of the short convolutions, which are elementwise to torch."""

    def __init__(self, passes: int) -> None:
        self.counter = FlopCounterMode(display=False)
        self.passes, self.convolved = passes, 0

    @property
    def total(self) -> int:
        return self.counter.get_total_flops() + self.passes * self.convolved

    def convolve(self, module: nn.Module, args: Any, out: Tensor) -> None:
        self.convolved += 2 * out.numel() * module.weight.shape[1]


@contextmanager
def counted(model: nn.Module, passes: int = 1) -> Iterator[Count]:
    """passes: 1 for a forward pass; 3 where a backward pass follows, which takes two products for each."""
    count = Count(passes)
    hooks = [m.register_forward_hook(count.convolve) for m in model.modules() if isinstance(m, ShortConv)]
    try:
        with count.counter:
            yield count
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def fused_kernels_as_products() -> Iterator[None]:
    """Torch's counter knows no fused attention on a CPU: here it is two products over whole scores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", _attention)
        yield


def _attention(q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Tensor:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    mask = settings["attn_mask"]
    if settings["is_causal"]:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    scores = q @ k.transpose(-1, -2) * settings["scale"]
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return F.dropout(scores.softmax(dim=-1), settings["dropout_p"]) @ v
