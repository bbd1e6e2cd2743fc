"""Where a stretch of a compiled program begins and ends that runs at torch's default float32 precision on a CPU.

A setting that Python changes is changed while a program is compiled, not while it runs: these are nodes of the program.
"""

from __future__ import annotations

import torch
from torch import Tensor

DEFAULT = "highest"

_outside: list[str] = []
"""The precisions outside the stretches of compiled programs that are being run, the innermost last."""


@torch.library.custom_op("zoo::begin_default_precision", mutates_args=())
def begin(tensors: list[Tensor]) -> list[Tensor]:
    """Copies of a stretch's inputs, as a node of a compiled program: what is computed from them comes after it."""
    _outside.append(torch.get_float32_matmul_precision())
    torch.set_float32_matmul_precision(DEFAULT)
    return [tensor.clone() for tensor in tensors]


@torch.library.custom_op("zoo::end_default_precision", mutates_args=())
def end(tensors: list[Tensor]) -> list[Tensor]:
    """Copies of a stretch's outputs; in the backward pass the two change places."""
    torch.set_float32_matmul_precision(_outside.pop())
    return [tensor.clone() for tensor in tensors]


for _begins, _ends in ((begin, end), (end, begin)):
    _begins.register_fake(lambda tensors: [torch.empty_like(tensor) for tensor in tensors])
    _begins.register_autograd(lambda ctx, gradients, reverse=_ends: reverse(gradients))
