"""Regions of the graph that run in float32 or more regardless of autocast, or at torch's default float32 precision.

`torch.set_float32_matmul_precision("medium")` can double the speed of a CPU's large matrix products, but slows down the
small ones inside scaled_dot_product_attention. So attention runs at the default precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

_DEFAULT = "highest"


def in_float32(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """`function(*tensors)` with the tensors in float32 or more, and with autocast off."""
    kind = torch.promote_types(tensors[0].dtype, torch.float32)
    with torch.autocast(tensors[0].device.type, enabled=False):
        return function(*(tensor.to(kind) for tensor in tensors))


def computed_in(x: Tensor) -> torch.dtype:
    """The dtype of matrix products of x: autocast's if it is on, else that of x."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def as_autocast_has_it(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors cast as autocast casts the inputs of scaled_dot_product_attention, for kernels unknown to autocast."""
    return tuple(tensor.to(computed_in(tensor)) for tensor in tensors)


def at_default_precision(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """`function(*tensors)`, with its forward and backward pass at the default float32 precision.

    A plain call if the default is already set, and on devices other than the CPU, where the setting reduces precision
    instead of selecting another kernel.
    """
    if tensors[0].device.type != "cpu":
        return function(*tensors)
    if torch.compiler.is_compiling():
        from zoo.kernels.precision_nodes import begin, end, is_default  # noqa: PLC0415 (torch.library registers them)

        if is_default():
            return function(*tensors)
        (found,) = end([function(*begin(list(tensors)))])
        return cast(Tensor, found)
    outside = torch.get_float32_matmul_precision()
    if outside == _DEFAULT:
        return function(*tensors)
    torch.set_float32_matmul_precision(_DEFAULT)
    try:
        if not torch.is_grad_enabled():
            return function(*tensors)
        end, begin = cast("tuple[Any, Any]", (_BackwardEnds.apply, _BackwardBegins.apply))
        return cast(Tensor, begin(function(*end(outside, *tensors))))
    finally:
        torch.set_float32_matmul_precision(outside)


class _BackwardBegins(torch.autograd.Function):
    """The identity on the region's output, where the backward pass enters the region."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        torch.set_float32_matmul_precision(_DEFAULT)
        return gradients[0]


class _BackwardEnds(torch.autograd.Function):
    """The identity on the region's inputs, where the backward pass leaves the region."""

    @staticmethod
    def forward(ctx: Any, outside: str, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.outside = outside
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        torch.set_float32_matmul_precision(ctx.outside)
        return None, *gradients
