"""This machine, measured as a device of the roofline, and the memory that work on it takes."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.nn import functional

from evals.costs import peaks
from evals.costs.clock import Clock
from evals.costs.devices import THIS, Device
from evals.costs.machine import LAYERS, TOKENS, all_overhead, memory_bytes
from evals.costs.memory import peak_memory, resident_status
from evals.costs.peaks import beyond_caches_bytes, copy_bytes_per_second, fastest
from evals.costs.point import Point
from evals.reading.passes import evaluating
from store.documents import SpeedPoint

_WIDTH = 1024
_SECONDS = 0.2


def this_device(dtype: str, device: str = "cpu", clock: Clock = time.perf_counter) -> Device:
    """Measure this machine, with the threads and the float32 precision in force. device: "cpu" or "cuda".

    The bandwidth is a copy's, and its share is what products with a single row reach, as in decoding. The peak is that
    of square products as measured, so that its share is 1. Takes a few seconds.
    """
    kind = getattr(torch, dtype)
    what = torch.cuda.get_device_name() if device == "cuda" else f"cpu, threads: {torch.get_num_threads()}"
    copied = copy_bytes_per_second(device, clock)
    return Device(
        name=THIS,
        title=f"this machine ({what})",
        source="measured: a square matrix product, a copy, matrix–vector products, and a model dominated by overhead",
        memory_bytes=memory_bytes(device),
        bandwidth_bytes_per_second=copied,
        flops_per_second={dtype: peaks.peak_flops_per_second(device, kind, clock=clock)},
        compute_share=1.0,
        bandwidth_share=min(1.0, matvec_bytes_per_second(device, kind, clock) / copied),
        overhead_seconds_per_layer=overhead_seconds_per_layer(kind, device, clock),
        shares_source="measured",
    )


def overhead_seconds_per_layer(dtype: torch.dtype, device: str = "cpu", clock: Clock = time.perf_counter) -> float:
    """Decoding time per layer of a model with almost nothing to compute or to read: the interpreter, dispatch and
    launches, in pre-norm blocks of attention and SwiGLU with 32 features."""
    model = all_overhead(device).to(dtype)
    with evaluating(model):
        found = rate(Point(model, context=TOKENS, batch=1, seconds=_SECONDS, clock=clock).decode())
    return 1 / found / LAYERS


def matvec_bytes_per_second(
    device: torch.device | str, dtype: torch.dtype = torch.float32, clock: Clock = time.perf_counter
) -> float:
    """Bytes of weights read per second by matrix products with a single row, as in decoding. The matrices together are
    much larger than the caches. The best of several rounds."""
    device = torch.device(device)
    count = beyond_caches_bytes(device) // (_WIDTH * _WIDTH * dtype.itemsize)
    weights = [torch.ones(_WIDTH, _WIDTH, device=device, dtype=dtype) for _ in range(count)]
    row = torch.ones(1, _WIDTH, device=device, dtype=dtype)

    def multiply() -> None:
        for weight in weights:
            functional.linear(row, weight)

    return sum(weight.nbytes for weight in weights) / fastest(multiply, device, clock)


def rate(point: SpeedPoint) -> float:
    """Median tokens per second. Raises RuntimeError with the reason if the point could not be measured."""
    if point.tokens_per_second is None:
        raise RuntimeError(f"context {point.context}, batch {point.batch}: {point.reason}")
    return point.tokens_per_second.median


@dataclass
class PeakGrowth:
    """Filled when the `with` block ends. `bytes` is None if the system does not report it."""

    bytes: int | None = None


@contextmanager
def peak_growth(device: torch.device | str) -> Iterator[PeakGrowth]:
    """Growth of peak memory inside the block over the memory in use before: the memory of the block's own work.

    Earlier garbage is collected first, and on a CPU freed memory that the C library keeps is returned: work that reuses
    it would seem to take none.
    """
    device, growth = torch.device(device), PeakGrowth()
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if device.type == "cpu" else None
    if trim is not None:  # only glibc has it
        trim(0)
    with peak_memory(device) as peak:
        before = torch.cuda.memory_allocated(device) if device.type == "cuda" else resident_status("VmRSS")
        yield growth
    if peak.source in ("VmHWM", "cuda allocated"):
        growth.bytes = max(0, peak.bytes - before)
