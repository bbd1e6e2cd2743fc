"""The machine's own memory bandwidth."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch.nn import functional

from evals.costs.clock import Clock, seconds_of

_CPU_BYTES = 2**27
_CUDA_BYTES = 2**30
_WIDTH = 1024
_ROUNDS = 8


def copy_bytes_per_second(device: torch.device | str, clock: Clock = time.perf_counter) -> float:
    """Bytes read and written per second by copying a tensor much larger than the caches, as STREAM's copy counts them
    (McCalpin 1995).

    The best of several rounds, since other load can only slow a round down. Takes a fraction of a second.
    """
    device = torch.device(device)
    source = torch.ones(_bytes(device) // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _fastest(lambda: target.copy_(source), device, clock)


def matvec_bytes_per_second(
    device: torch.device | str, dtype: torch.dtype = torch.float32, clock: Clock = time.perf_counter
) -> float:
    """Bytes of weights read per second by matrix products with a single row, as in decoding. The matrices together are
    much larger than the caches. The best of several rounds."""
    device = torch.device(device)
    count = _bytes(device) // (_WIDTH * _WIDTH * dtype.itemsize)
    weights = [torch.ones(_WIDTH, _WIDTH, device=device, dtype=dtype) for _ in range(count)]
    row = torch.ones(1, _WIDTH, device=device, dtype=dtype)

    def multiply() -> None:
        for weight in weights:
            functional.linear(row, weight)

    return sum(weight.nbytes for weight in weights) / _fastest(multiply, device, clock)


def _bytes(device: torch.device) -> int:
    return _CUDA_BYTES if device.type == "cuda" else _CPU_BYTES


def _fastest(work: Callable[[], object], device: torch.device, clock: Clock) -> float:
    _, *seconds = (seconds_of(work, device, clock) for _ in range(_ROUNDS + 1))  # the first round touches the pages
    return min(seconds)
