"""FLOPs as torch counts them, independently of what is declared."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from zoo.conv import ShortConv
from zoo.features.chunks import Chunking
from zoo.model import Decoder


class Count(TorchDispatchMode):
    """total: FLOPs of the products of matrices and of the short convolutions, which are elementwise to torch.

    The formulas are torch's. Its `FlopCounterMode` also tracks which module runs, which takes twice as long.
    """

    def __init__(self, passes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.passes, self.multiplied, self.convolved = passes, 0, 0

    @property
    def total(self) -> int:
        return self.multiplied + self.passes * self.convolved

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        formula = flop_registry.get(func.overloadpacket)
        if formula is None and _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        if func is torch.ops.aten.convolution_backward.default:
            self.multiplied += _of_convolution_backward(*args)
        elif formula is not None:
            self.multiplied += formula(*args, **kwargs, out_val=out)
        return out

    def convolve(self, module: ShortConv, args: Any, out: Tensor) -> None:
        self.convolved += 2 * out.numel() * module.weight.shape[1]


def _of_convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *settings: Any) -> int:
    """FLOPs of a convolution's backward pass: those of the forward pass for each gradient requested. torch's formula
    lets every channel of a grouped convolution read all others."""
    wanted: list[bool] = settings[-1]
    return sum(wanted[:2]) * 2 * gradient.numel() * weight[0].numel()


@functools.cache
def _is_composite(func: Any) -> bool:
    """Whether an operation is written in terms of others, as `matmul` is: they arrive whole in inference mode."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


@contextmanager
def counted(model: nn.Module, passes: int = 1) -> Iterator[Count]:
    """passes: 1 for a forward pass; 3 where a backward pass follows, which takes two products for each."""
    count = Count(passes)
    hooks = [m.register_forward_hook(count.convolve) for m in model.modules() if isinstance(m, ShortConv)]
    try:
        with count:
            yield count
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def expected_chunks(model: Decoder) -> Iterator[None]:
    """Every text makes as many chunks as are declared. They begin at its first tokens: only their number counts."""
    chunking = next((part for part in model.parts if isinstance(part, Chunking)), None)
    if chunking is None:
        yield
        return

    def begins(p: Tensor) -> Tensor:
        return (torch.arange(p.shape[1]) < chunking.spec.count(p.shape[1])).expand_as(p)

    with patch.object(chunking, "begins", begins):
        yield


@contextmanager
def fused_kernels_as_products() -> Iterator[None]:
    """Torch's counter knows no fused attention on a CPU: here it is two products over whole scores."""
    with patch.object(F, "scaled_dot_product_attention", _attention):
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
