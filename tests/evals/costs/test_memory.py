"""Errors that count as running out of memory, and peaks, which leave out what failed before."""

from __future__ import annotations

import pytest
import torch

from evals.costs.memory import forget, high_water_mark, is_out_of_memory, peak_memory

MIB = 2**20


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
    ],
    ids=str,
)
def test_what_counts_as_running_out_of_memory(error: RuntimeError, counts: bool) -> None:
    assert is_out_of_memory(error) is counts


def test_a_peak_is_not_of_what_failed() -> None:
    with peak_memory("cpu") as peak:
        if peak.source != "VmHWM":
            pytest.skip("this system does not let a process forget its peak")
        failed = torch.ones(64 * MIB)  # 256 MiB, which glibc maps by itself and gives back at once
        highest = high_water_mark()
        del failed
        forget("cpu")
    assert peak.bytes < highest - 200 * MIB
