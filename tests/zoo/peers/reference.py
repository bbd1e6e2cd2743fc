"""The plain reference operators of fla-core (flash-linear-attention, Yang & Zhang 2024), computed in float64."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata, util
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

KERNELS = ("fla.ops.utils", "fla.ops.utils.pooling", "flash_attn")
"""Modules of kernels, which need a GPU. References import them; the functions that are compared do not call them."""


@cache
def _module(file: str) -> ModuleType:
    """fla/ops/{file}.py, loaded by itself: the packages around it import triton."""
    path = metadata.distribution("fla-core").locate_file(f"fla/ops/{file}.py")
    spec = util.spec_from_file_location(f"fla_reference_{file.replace('/', '_')}", str(path))
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in KERNELS}):
        spec.loader.exec_module(module)
    return module


def reference(file: str, name: str) -> Callable[..., Any]:
    """Function `name` of fla/ops/{file}.py."""
    function = getattr(_module(file), name)

    def in_float64(*args: Any, **kwargs: Any) -> Any:
        with _default_float64(), _WidenedCasts():
            return function(*args, **kwargs)

    return in_float64


@contextmanager
def _default_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _WidenedCasts(TorchFunctionMode):
    """Turn casts to float32, with which the references begin, into casts to float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.float:
            return args[0].double()
        wide = {name: _widened(value) for name, value in (kwargs or {}).items()}
        return func(*map(_widened, args), **wide)


def _widened(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def by_token(x: Tensor) -> Tensor:
    """(B, H, T, …) ↔ (B, T, H, …)."""
    return x.transpose(1, 2)
