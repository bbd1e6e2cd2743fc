"""Functions that run once, when a model is compiled, and whose results are constants of the program."""

from __future__ import annotations

import torch

from zoo.attend import note
from zoo.kernels.grouped import has_kernel


def hold_constants() -> None:
    """Make the results of `note` and `has_kernel` constants of every program compiled from now on. Otherwise `note`
    would cause a recompilation at the second pass; `has_kernel` starts a process."""
    for function in (note, has_kernel):
        torch.compiler.assume_constant_result(function)
