"""Traces of a GPU's training step on a machine without one: what chooses by device chooses as it would there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

Attention = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""Stands for a fused attention kernel: queries (B, H, T, d), keys (B, K, S, d), values (B, K, S, e) and the share of
the T × S scores that are computed → (B, H, T, e)."""

Norm = Callable[[Tensor, Tensor | None], Tensor]
"""Stands for a fused RMSNorm: (..., D) and a gain, (D,) → (..., D)."""


@dataclass(frozen=True)
class Trace:
    """A pretence. compiled: the loss is written as torch.compile is given it. attention, norm: what stands for
    fused kernels, which take no tensors of the processor."""

    device: str
    compiled: bool
    attention: Attention
    norm: Norm


_open: list[Trace] = []
"""Open `traced_for` blocks, the innermost last. torch.compile cannot trace a ContextVar."""


@contextmanager
def traced_for(trace: Trace) -> Iterator[None]:
    """Pretend inside the block. Tensors stay where they are, and are to have no data."""
    _open.append(trace)
    try:
        yield
    finally:
        _open.pop()


def is_fake(tensor: Tensor) -> bool:
    """Whether a tensor has a shape and no data. By name: its class loads a good part of torch's compiler."""
    return type(tensor).__name__ == "FakeTensor"


def device_type(tensor: Tensor) -> str:
    """The kind of device that a pass over `tensor` is for: where it is, or what is pretended."""
    return _open[-1].device if _open else tensor.device.type


def is_compiling() -> bool:
    """Whether torch.compile traces, or a trace follows what it would be given."""
    return torch.compiler.is_compiling() or (bool(_open) and _open[-1].compiled)


def rms_norm(x: Tensor, gain: Tensor | None, eps: float) -> Tensor:
    """torch's own, which is one kernel on a GPU."""
    return _open[-1].norm(x, gain) if _open else F.rms_norm(x, x.shape[-1:], gain, eps)


def attention() -> Attention | None:
    """The stand-in for a fused attention kernel, inside a trace."""
    return _open[-1].attention if _open else None
