"""Probes of the machine: peak memory, matmul ceiling, float32 precision."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import zoo
from evals.costs.machine import training_seconds_per_layer
from evals.costs.memory import peak_memory
from evals.costs.peaks import peak_flops_per_second, recent_peak_flops_per_second, use_fast_float32

MIB = 2**20
has_clear_refs = Path("/proc/self/clear_refs").exists()


@pytest.fixture
def default_precision() -> Iterator[None]:
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.skipif(not has_clear_refs, reason="needs /proc/self/clear_refs")
def test_the_high_water_mark_rises_with_use_and_is_reset() -> None:
    with peak_memory("cpu") as before:
        pass
    with peak_memory("cpu") as during:
        torch.ones(128 * MIB // 4).sum()
    with peak_memory("cpu") as after:
        pass
    assert before.source == during.source == "VmHWM"
    assert during.bytes - before.bytes == pytest.approx(128 * MIB, rel=0.1)
    assert during.bytes - after.bytes > 100 * MIB


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs mallinfo2 of glibc 2.33")
def test_no_pass_pays_for_pages_that_the_one_before_had() -> None:
    """A new process shows it: blocks of 30 MiB that are mapped by themselves, before and after, and then the page
    faults of ten passes that each take 400 blocks of 60 kB, 24 MB, and free them."""
    code = """
import ctypes, resource, torch
from evals.costs.memory import keep_freed_memory
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks")]
    _fields_ += [("others", ctypes.c_size_t * 6)]
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Info
def mapped():
    before = mallinfo().hblks
    block = torch.empty(30 * 2**20, dtype=torch.uint8)
    return mallinfo().hblks - before, block
def faults(passes):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(passes):
        blocks = [torch.ones(15_000) for _ in range(400)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
first, block = mapped()  # not freed, which would do what is tested
keep_freed_memory()
faults(5)
print(first, mapped()[0], faults(10))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    mapped_before, mapped_after, faults = map(int, printed.split())
    assert (mapped_before, mapped_after) == (1, 0)
    assert faults < 0.02 * 10 * 400 * 60_000 / resource.getpagesize()


def test_without_proc_the_source_is_named(tmp_path: Path) -> None:
    with peak_memory("cpu", process=tmp_path / "missing") as peak:
        pass
    assert peak.source == "ru_maxrss since process start"
    assert peak.bytes == resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.gpu
def test_cuda_peak_counts_what_was_allocated() -> None:
    with peak_memory("cuda") as peak:
        held = torch.ones(64 * MIB // 4, device="cuda")
    assert peak.source == "cuda allocated"
    assert peak.bytes >= held.nbytes
    assert peak.reserved_bytes is not None
    assert peak.reserved_bytes >= peak.bytes


def test_the_matmul_ceiling_is_at_least_what_one_product_reaches() -> None:
    a, b = torch.randn(512, 512), torch.randn(512, 512)
    start = time.perf_counter()
    for _ in range(10):
        a @ b
    reached = 10 * 2 * 512**3 / (time.perf_counter() - start)
    start = time.perf_counter()
    ceiling = peak_flops_per_second("cpu", torch.float32)
    assert time.perf_counter() - start < 2
    assert ceiling > 0.3 * reached  # other processes may be at work


def test_what_a_layer_adds_to_a_step_is_the_median_step_over_the_layers() -> None:
    """The first step sets up; of five, 1, 1, 9, 1 and 1 s by this clock, the median is 1 s, over eight layers."""
    times = iter([0.0, 50.0, 0.0, 1.0, 0.0, 1.0, 0.0, 9.0, 0.0, 1.0, 0.0, 1.0])
    assert training_seconds_per_layer("cpu", clock=lambda: next(times)) == 1 / 8
    assert next(times, None) is None


def test_a_training_step_is_foretold_by_arithmetic_and_layers() -> None:
    """A model that is all overhead, four times as deep as the one that is measured."""
    per_layer = training_seconds_per_layer("cpu")
    model = zoo.build(zoo.load("small", d_model=32, n_layers=32, vocab_size=64))
    tokens, optimizer = torch.zeros(1, 16, dtype=torch.long), torch.optim.AdamW(model.parameters())
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        model(tokens).square().mean().backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    assert 1 / 4 < min(seconds) / (32 * per_layer) < 4  # other processes may be at work


@pytest.mark.usefixtures("default_precision")
def test_fast_float32_is_float32() -> None:
    assert use_fast_float32() == torch.get_float32_matmul_precision()
    a, b = torch.randn(300, 400), torch.randn(400, 500)
    exact = a.double() @ b.double()
    assert float((a @ b - exact).norm() / exact.norm()) < 1e-5


@pytest.mark.usefixtures("default_precision")
def test_a_rounding_kernel_is_not_kept() -> None:
    assert use_fast_float32(lambda *_: 2e-3) == "highest"  # what bfloat16 inputs give
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_ceiling_of_a_run_is_measured_once_a_minute() -> None:
    measured: list[str] = []

    def measure(device: str, _: torch.dtype) -> float:
        measured.append(device)
        return float(len(measured))

    def peak(now: float) -> float:
        return recent_peak_flops_per_second("cpu", torch.float32, measure, lambda: now)

    found = [peak(0.0), peak(59.0), peak(61.0)]
    torch.set_float32_matmul_precision("medium")
    found.append(peak(61.0))
    assert found == [1.0, 1.0, 2.0, 3.0]
