"""Trials of a kernel in a process of its own. New kernels are known to leave results uninitialised, to hang, and to end
their process, so the first use in a process first runs a module that compares the kernel with its definition."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch

WRONG = 3
"""Exit status of a trial whose results are wrong."""
TRIAL_SECONDS = 300.0
"""A trial that takes longer counts as hanging. It first loads torch: ten seconds, or minutes on a busy machine."""


def trial_of(module: str) -> tuple[str, ...]:
    """The command that runs a module as a trial on this machine's GPU."""
    return sys.executable, "-P", "-m", module


def trial_fault(
    command: Sequence[str], wrong: str = "gives wrong results", timeout_seconds: float = TRIAL_SECONDS
) -> str | None:
    """Fault of the kernel that a trial in a subprocess finds; None if it finds none. A trial that cannot start, as on a
    GPU that only one process may use, is no evidence against the kernel. wrong: words for wrong results."""
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(Path(__file__).parents[2]), *([inherited] if inherited else [])])
    try:
        done = subprocess.run(
            command,
            check=False,
            timeout=timeout_seconds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode < 0:
        return "crashes"
    return wrong if done.returncode == WRONG else None


@cache
def is_right(trial: Callable[[], str | None], kernel: str, instead: str) -> bool:
    """Whether a trial, run once per process, finds no fault in a kernel of torch; else warns, and says what is used
    instead."""
    found = trial()
    if found is not None:
        warnings.warn(f"torch's {kernel} {found} on this GPU; {instead}", stacklevel=2)
    return found is None


def agree(
    compute: Callable[[], Sequence[torch.Tensor]], expected: Sequence[torch.Tensor], device: str, tolerance: float
) -> bool:
    """Whether a kernel's results, computed with freed memory full of NaN, differ from those expected by at most
    `tolerance` of the largest entry of each."""
    poison_freed_memory(device)
    try:
        errors = [(one - other).abs().max() / other.abs().max() for one, other in zip(compute(), expected, strict=True)]
        return all(bool(error <= tolerance) for error in errors)  # false for NaN
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return False


def poison_freed_memory(device: str) -> None:
    """Free memory full of NaN, for the allocator to hand out again."""
    blocks = [
        torch.full((size,), float("nan"), device=device) for size in (2**10, 2**13, 2**16, 2**20) for _ in range(16)
    ]
    del blocks
