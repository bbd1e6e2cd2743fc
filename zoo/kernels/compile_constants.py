"""Functions that run once, when a model is compiled, and whose results are constants of the program."""

from __future__ import annotations

import torch

from zoo.attend import note
from zoo.attending import varlen
from zoo.kernels import grouped


def hold_constants() -> None:
    """Make the results of these functions constants of every program compiled from now on. Otherwise `note` would cause
    a recompilation at the second pass; the others start a process."""
    for function in (note, grouped.has_kernel, varlen.has_kernel):
        torch.compiler.assume_constant_result(function)
