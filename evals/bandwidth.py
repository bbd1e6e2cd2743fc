"""The machine's own memory bandwidth."""

from __future__ import annotations

import time

import torch

from evals.clock import synchronise

_CPU_BYTES = 2**27
_CUDA_BYTES = 2**30
_ROUNDS = 8


def copy_bytes_per_second(device: torch.device | str) -> float:
    """Bytes read and written per second by copying a tensor much larger than the caches, as STREAM's copy counts them
    (McCalpin 1995).

    The best of several rounds, since whatever else the machine does can only slow one down. Takes a fraction of a
    second.
    """
    device = torch.device(device)
    size = _CUDA_BYTES if device.type == "cuda" else _CPU_BYTES
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(_ROUNDS + 1):
        synchronise(device)
        start = time.perf_counter()
        target.copy_(source)
        synchronise(device)
        seconds.append(time.perf_counter() - start)
    return 2 * size / min(seconds[1:])  # the first touches the pages
