"""Helpers for compiled models: copies of functions that torch.compile counts separately, and numbers sent to a device
without waiting."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch import Tensor


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


def on_device(values: Any, device: torch.device) -> Tensor:
    """`torch.tensor(values, device=device)` without a synchronisation: a GPU copies from pinned memory. In a compiled
    program the values are constants."""
    if device.type != "cuda" or torch.compiler.is_compiling():
        return torch.tensor(values, device=device)
    return torch.tensor(values, pin_memory=True).to(device, non_blocking=True)
