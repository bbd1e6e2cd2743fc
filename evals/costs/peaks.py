"""Peaks of this machine: memory bandwidth, FLOP/s of matrix products, and the fastest that are exact to float32."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch

from evals.costs.clock import Clock, seconds_of

_CPU_BYTES = 2**27
_CUDA_BYTES = 2**30
_TOUCHES = 8


def copy_bytes_per_second(device: torch.device | str, clock: Clock = time.perf_counter) -> float:
    """Bytes read and written per second by copying a tensor much larger than the caches, as STREAM's copy counts them
    (McCalpin 1995).

    The best of several rounds, since other load can only slow a round down. Takes a fraction of a second.
    """
    device = torch.device(device)
    source = torch.ones(beyond_caches_bytes(device) // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / fastest(lambda: target.copy_(source), device, clock)


def beyond_caches_bytes(device: torch.device) -> int:
    """Size of tensors that are much larger than the device's caches."""
    return _CUDA_BYTES if device.type == "cuda" else _CPU_BYTES


def fastest(work: Callable[[], object], device: torch.device, clock: Clock) -> float:
    """Seconds of the best of several rounds, since other load can only slow a round down."""
    _, *seconds = (seconds_of(work, device, clock) for _ in range(_TOUCHES + 1))  # the first round touches the pages
    return min(seconds)


_CPU_SIZE = 768
_CUDA_SIZE = 8192
_ROUNDS = 5
_ROUND_SECONDS = 0.03


def peak_flops_per_second(
    device: torch.device | str, dtype: torch.dtype = torch.float32, clock: Clock = time.perf_counter
) -> float:
    """FLOP/s of a large square matrix product of 2n³ FLOPs, under the precision and the number of CPU threads in force.

    The best of several rounds, since other load can only slow a round down. Takes a fraction of a second.
    """
    device = torch.device(device)
    try:
        return _measure(device, dtype, clock)
    finally:
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


_LARGEST_RELATIVE_ERROR = 1e-5
# Rows × inner × columns of a projection, a feed-forward layer and a square: libraries choose kernels by shape.
_PROBES = ((2048, 128, 128), (2048, 128, 344), (512, 512, 512))


ProductError = Callable[[int, int, int], float]
"""Relative error of a product of rows × inner and inner × columns."""


def use_fast_float32(error: ProductError | None = None) -> str:
    """Let the CPU's matrix products use another kernel, if it is as exact; return the setting now in force.

    On processors without matrix units "medium" picks a kernel that is true float32 and up to twice as fast; on others
    it rounds inputs to bfloat16. So it is kept only if products agree with float64 to a relative error of 1e-5. Results
    of the two settings differ in their last bits, so the setting belongs to a run's identity. It is meant for work on
    the CPU: on CUDA the same setting means TF32.

    error: relative error of a product; None to measure it.
    """
    torch.set_float32_matmul_precision("medium")
    worst = max(error(*shape) for shape in _PROBES) if error else _worst_error(torch.get_num_threads())
    found = "highest" if worst > _LARGEST_RELATIVE_ERROR else "medium"
    torch.set_float32_matmul_precision(found)
    return found


@functools.cache
def _worst_error(_threads: int) -> float:
    """Largest error of the probes under "medium", which is in force. Libraries choose kernels by shape and threads."""
    return max(relative_error(*shape) for shape in _PROBES)


def relative_error(rows: int, inner: int, columns: int) -> float:
    """‖AB − (AB)₆₄‖ / ‖(AB)₆₄‖ for random A and B."""
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(rows, inner, generator=draw), torch.randn(inner, columns, generator=draw)
    exact = a.double() @ b.double()
    return float((a @ b - exact).norm() / exact.norm())
