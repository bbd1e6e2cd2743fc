"""Functions that a compiled model calls once, when it is compiled, and whose answers stay in its program."""

from __future__ import annotations

import torch

from zoo.attend import note
from zoo.kernels.grouped import has_kernel


def hold_constants() -> None:
    """Take their answers as constants of every program that is compiled from now on: `note` would have each graph
    compiled again at its second pass, and `has_kernel` starts a process."""
    for function in (note, has_kernel):
        torch.compiler.assume_constant_result(function)
