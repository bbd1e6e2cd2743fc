"""Helpers for compiled models: copies of functions that torch.compile counts separately, functions whose results are
constants of a program, and numbers sent to a device without waiting."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

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
