"""Helpers for compiled models: copies of functions that torch.compile counts separately, functions whose results are
constants of a program, and numbers sent to a device without waiting.

Also traces of a GPU's training step on a machine without a GPU: code that chooses by device chooses as on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F


def distinct_code(function: FunctionType) -> FunctionType:
    """A copy of the function with a code object of its own."""
    own = FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    own.__kwdefaults__ = function.__kwdefaults__
    return own


Function = TypeVar("Function", bound=Callable[..., Any])
_constant: list[Callable[..., Any]] = []


def constant(function: Function) -> Function:
    """Decorator of a function that runs once, when a model is compiled. If `zoo.attend.note` ran at each pass, the
    second would recompile; functions that try a kernel start a process."""
    _constant.append(function)
    return function


def hold_constants() -> None:
    """Make the results of `constant` functions constants of every program compiled from now on."""
    for function in _constant:
        torch.compiler.assume_constant_result(function)


def on_device(values: Any, device: torch.device) -> Tensor:
    """`torch.tensor(values, device=device)` without a synchronisation: a GPU copies from pinned memory. In a compiled
    program the values are constants."""
    if device.type != "cuda" or torch.compiler.is_compiling():
        return torch.tensor(values, device=device)
    return torch.tensor(values, pin_memory=True).to(device, non_blocking=True)


Attention = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""Stand-in for a fused attention kernel: queries (B, H, T, d), keys (B, K, S, d), values (B, K, S, e) and the share of
the T × S scores that are computed → (B, H, T, e)."""

Norm = Callable[[Tensor, Tensor | None], Tensor]
"""Stand-in for a fused RMSNorm: (..., D) and a gain, (D,) → (..., D)."""


@dataclass(frozen=True)
class Trace:
    """Settings of a trace. compiled: whether to follow the code that torch.compile gets. attention, norm: stand-ins for
    fused kernels, which take no CPU tensors."""

    device: str
    compiled: bool
    attention: Attention
    norm: Norm


_open: list[Trace] = []
"""Open `traced_for` blocks, the innermost last. torch.compile cannot trace a ContextVar."""


@contextmanager
def traced_for(trace: Trace) -> Iterator[None]:
    """Trace for `trace.device` inside the block. Tensors stay on their device and must be fake: without data."""
    _open.append(trace)
    try:
        yield
    finally:
        _open.pop()


def is_fake(tensor: Tensor) -> bool:
    """Whether a tensor has a shape but no data. By name: importing its class loads much of torch's compiler."""
    return type(tensor).__name__ == "FakeTensor"


def device_type(tensor: Tensor) -> str:
    """The type of device that a pass over `tensor` is for: the trace's inside one, else the tensor's."""
    return _open[-1].device if _open else tensor.device.type


def is_compiling() -> bool:
    """Whether torch.compile is tracing, or a trace follows the code that it would get."""
    return torch.compiler.is_compiling() or (bool(_open) and _open[-1].compiled)


def rms_norm(x: Tensor, gain: Tensor | None, eps: float) -> Tensor:
    """torch's RMSNorm, which is one kernel on a GPU; its stand-in inside a trace."""
    return _open[-1].norm(x, gain) if _open else F.rms_norm(x, x.shape[-1:], gain, eps)


def attention() -> Attention | None:
    """The stand-in for a fused attention kernel inside a trace; None outside."""
    return _open[-1].attention if _open else None
