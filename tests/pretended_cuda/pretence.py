# ruff: noqa: E402 (the guard is loaded before torch)
"""A CUDA device that is not there, for scripts of their own process that are given the guard's path: import this first.

A fake tensor has a device, a type and a shape but no data. What the driver or a kernel would be asked is replaced, and
the host's waits are counted: in `.item()`, `.tolist()`, `int()`, `bool()`, in what needs them inside, such as bincount,
and for numbers that are sent from memory that is not pinned.
"""

from __future__ import annotations

import ctypes
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)  # before torch, which looks for devices once

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.cuda.amp import common
from torch.nn import functional as F

from zoo.attending.backends import varlen
from zoo.ffns import _experts
from zoo.ffns import _grouped as grouped

ROOT = Path(__file__).parents[2]
OURS = [ROOT / package for package in ("zoo", "evals", "ablate")]
reads: Counter[str] = Counter()
"""Waits since the last `outcome` began, by place."""


def pretend() -> None:
    """Replace what asks a driver."""
    common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    F.scaled_dot_product_attention = products
    torch.multinomial = drawn
    for name, value in {"item": 1, "__int__": 1, "__index__": 1, "__float__": 1.0, "__bool__": True}.items():
        setattr(Tensor, name, counting(name, getattr(Tensor, name), lambda _, value=value: value))
    torch.tensor, torch.as_tensor = sending("tensor", torch.tensor), sending("as_tensor", torch.as_tensor)
    FakeTensor.tolist = counting("tolist", FakeTensor.tolist, lambda tensor: [1.0] * len(tensor))
    _experts.sizes_on_host = even_sizes
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    grouped.fault = varlen.fault = lambda: None


def outcome(of: Callable[[], None]) -> dict[str, Any]:
    """{"error": str | None, "reads": {place: times}}"""
    reads.clear()
    error = None
    try:
        of()
    except Exception as raised:  # every kind is what is looked for
        error = f"{place(traceback.extract_tb(raised.__traceback__))}: {type(raised).__name__}: {raised}"
    return {"error": error, "reads": dict(reads)}


def even_sizes(load: Tensor, rows: int) -> list[int]:
    """Even numbers of rows for experts, whose choice of rows is not known; counted as a read on the host."""
    reads[f"tolist in {place(traceback.extract_stack())}"] += 1
    return [(rows + expert) // len(load) for expert in range(len(load))]


def counting(name: str, real: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    def read(tensor: Tensor, *args: Any, **settings: Any) -> Any:
        if not isinstance(tensor, FakeTensor) or tensor.device.type != "cuda":
            return real(tensor, *args, **settings)
        reads[f"{name} in {place(traceback.extract_stack())}"] += 1
        return fake(tensor, *args, **settings)

    return read


def sending(name: str, real: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch.tensor and torch.as_tensor, counted where they send numbers of the host's to the device."""

    def sent(values: Any, *, pin_memory: bool = False, **settings: Any) -> Tensor:
        made = real(values, **settings)
        if made.device.type == "cuda" and not isinstance(values, Tensor) and not torch.compiler.is_compiling():
            reads[f"{name} in {place(traceback.extract_stack())}"] += 1
        return made

    return sent


def place(stack: traceback.StackSummary) -> str:
    """The innermost line of ours."""
    frames = [frame for frame in stack if any(Path(frame.filename).is_relative_to(folder) for folder in OURS)]
    return f"{Path(frames[-1].filename).relative_to(ROOT)}:{frames[-1].lineno}" if frames else "?"


def drawn(weights: Tensor, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Zeros: fake tensors do not check the generator's device, which multinomial does."""
    if generator is not None and generator.device != weights.device:
        raise RuntimeError(f"a generator on {generator.device} for weights on {weights.device}")
    return weights.new_zeros(len(weights), count, dtype=torch.long)


def products(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, *, enable_gqa: bool = False, **_: Any
) -> Tensor:
    """Attention by products, since the choice of a kernel asks the driver. Raises for what the kernels refuse."""
    if torch.backends.cuda.cudnn_sdp_enabled() and not torch.is_grad_enabled():
        raise RuntimeError("cuDNN would plan anew for each shape that is read")
    if torch.is_autocast_enabled("cuda"):
        q, k, v = (x.to(torch.get_autocast_dtype("cuda")) for x in (q, k, v))
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"queries {q.dtype}, keys {k.dtype}, values {v.dtype}")
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, torch.float32, q.dtype):
        raise TypeError(f"queries {q.dtype}, mask {attn_mask.dtype}")
    if q.shape[1] != k.shape[1]:
        assert enable_gqa
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2)
    if attn_mask is not None:
        scores = torch.where(attn_mask, scores, 0) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(dim=-1).to(v.dtype) @ v
