"""Peak FLOP/s of the machine, for model FLOP utilisation."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch

from evals.costs.clock import Clock, seconds_of

_CPU_SIZE = 768
_CUDA_SIZE = 8192
_ROUNDS = 5
_ROUND_SECONDS = 0.03


def peak_flops_per_second(
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
    threads: int | None = None,
    clock: Clock = time.perf_counter,
) -> float:
    """FLOP/s of a large square matrix product of 2n³ FLOPs, under the precision settings in force.

    The best of several rounds, since other load can only slow a round down. threads: number of CPU threads; None for
    the current setting. Takes a fraction of a second.
    """
    device = torch.device(device)
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        return _measure(device, dtype, clock)
    finally:
        torch.set_num_threads(before)
        if device.type == "cuda":
            torch.cuda.empty_cache()  # planning must not keep memory that runs could use


Measure = Callable[[str, torch.dtype], float]
"""device, dtype → FLOP/s."""


def recent_peak_flops_per_second(
    device: torch.device | str, dtype: torch.dtype, measure: Measure | None = None, clock: Clock = time.monotonic
) -> float:
    """Peak FLOP/s, measured at most once a minute in this process: many runs take less time than the measurement.

    measure: replaces `peak_flops_per_second`. clock: seconds that determine the minute.
    """
    settings = torch.get_num_threads(), torch.get_float32_matmul_precision()
    return _of_this_minute(measure or peak_flops_per_second, str(device), dtype, settings, int(clock() // 60))


@functools.lru_cache(maxsize=8)
def _of_this_minute(
    measure: Measure, device: str, dtype: torch.dtype, _settings: tuple[int, str], _minute: int
) -> float:
    return measure(device, dtype)


def _measure(device: torch.device, dtype: torch.dtype, clock: Clock) -> float:
    n = _CUDA_SIZE if device.type == "cuda" else _CPU_SIZE
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty(n, n, device=device, dtype=dtype)

    def multiply(repeats: int) -> None:
        for _ in range(repeats):
            torch.matmul(a, b, out=out)

    with torch.inference_mode():
        once = min(seconds_of(lambda: multiply(1), device, clock) for _ in range(2))
        repeats = max(1, round(_ROUND_SECONDS / once))
        rounds = [seconds_of(lambda: multiply(repeats), device, clock) / repeats for _ in range(_ROUNDS)]
    return 2 * n**3 / min(rounds)
