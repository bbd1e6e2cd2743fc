"""Operators that begin and end a region of a compiled program at torch's default float32 precision on a CPU.

A setting changed in Python changes when a program is compiled, not when it runs; these operators are program nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor

DEFAULT = "highest"

_outside: list[str] = []
"""Precisions outside the regions that are running, the innermost last."""


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def is_default() -> bool:
    """Whether the default is already set. A program compiled now then needs no nodes, which copy their tensors; torch
    compiles again after a change of the setting."""
    return torch.get_float32_matmul_precision() == DEFAULT


@torch.library.custom_op("zoo::begin_default_precision", mutates_args=())
def begin(tensors: list[Tensor]) -> list[Tensor]:
    """Copies of a region's inputs. Everything computed from them runs after this node of the program."""
    _outside.append(torch.get_float32_matmul_precision())
    torch.set_float32_matmul_precision(DEFAULT)
    return [tensor.clone() for tensor in tensors]


@torch.library.custom_op("zoo::end_default_precision", mutates_args=())
def end(tensors: list[Tensor]) -> list[Tensor]:
    """Copies of a region's outputs. In the backward pass `begin` and `end` swap roles."""
    torch.set_float32_matmul_precision(_outside.pop())
    return [tensor.clone() for tensor in tensors]


for _begins, _ends in ((begin, end), (end, begin)):
    _begins.register_fake(lambda tensors: [torch.empty_like(tensor) for tensor in tensors])
    _begins.register_autograd(lambda ctx, gradients, reverse=_ends: reverse(gradients))
