"""Peak memory of a stretch of work.

On a CPU this is the process's high-water mark of resident memory (VmHWM), which Linux lets a process reset by writing 5
to /proc/self/clear_refs: it includes the interpreter, the libraries and memory kept by the allocator, all of which the
machine needs. On CUDA it is the allocator's peak, which leaves out the context and the libraries.
"""

from __future__ import annotations

import gc
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

_PROCESS = Path("/proc/self")
_MEMINFO = Path("/proc/meminfo")
_RESET_PEAK = "5"
_LARGEST_MAPPED = 2**25 - 2**16


def keep_freed_memory() -> None:
    """Make the C library keep freed memory, instead of returning it and requesting it again in every pass.

    glibc returns free memory beyond twice the largest block that was mapped by itself and freed so far, at most 32 MiB
    (mallopt(3), M_MMAP_THRESHOLD). Until a process has freed a block of that size, its passes pay for new pages, and
    early measurements are slower than later ones.
    """
    torch.empty(_LARGEST_MAPPED, dtype=torch.uint8)


_NO_MEMORY = (
    "can't allocate memory",
    "Storage size calculation overflowed",
    "CUDA error: out of memory",
    "_STATUS_ALLOC_FAILED",
)
"""Out-of-memory messages of a CPU, of sizes beyond 64 bits, of allocations by a GPU's driver, and of the workspaces of
cuBLAS and cuDNN."""


def is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _NO_MEMORY)


def forget(device: str) -> None:
    """Release unused memory and reset the peaks: after memory ran out, or between two phases."""
    gc.collect()  # reference cycles may hold tensors, for example through the frames of a traceback
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    else:
        _reset_high_water_mark()


CONTEXT_BYTES = 600 * 2**20
"""Assumed GPU memory of a process besides its tensors, for kernels and libraries."""


def take_share(runs: int) -> None:
    """Limit this process to its share of the GPU's memory if `runs` processes share the GPU, so that one that needs too
    much does not make the others fail."""
    if runs > 1:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(max(0.0, 1 / runs - CONTEXT_BYTES / total))


@dataclass
class PeakMemory:
    """Filled when the `with` block ends. `source` says what was measured.

    reserved_bytes: memory that CUDA's allocator took from the device; None elsewhere.
    """

    source: str
    bytes: int = 0
    reserved_bytes: int | None = None


@contextmanager
def peak_memory(device: torch.device | str, process: Path = _PROCESS) -> Iterator[PeakMemory]:
    """Peak memory inside the block, on the device that does the work. process: this process's folder in /proc."""
    device = torch.device(device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        peak = PeakMemory("cuda allocated")
    else:
        peak = PeakMemory("VmHWM" if _reset_high_water_mark(process) else "ru_maxrss since process start")
    try:
        yield peak
    finally:
        if device.type == "cuda":
            peak.bytes = torch.cuda.max_memory_allocated(device)
            peak.reserved_bytes = torch.cuda.max_memory_reserved(device)
        elif peak.source == "VmHWM":
            peak.bytes = high_water_mark()
        else:  # it never falls; Linux counts it in KiB, macOS in bytes
            unit = 1 if sys.platform == "darwin" else 1024
            peak.bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _reset_high_water_mark(process: Path = _PROCESS) -> bool:
    """Reset the mark; return whether that worked: some systems lack the file, some sandboxes forbid writing it."""
    try:
        (process / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def high_water_mark() -> int:
    """VmHWM in bytes: the peak of resident memory since the process began, or since the last reset."""
    return resident_status("VmHWM")


def resident_status(name: str) -> int:
    """A size that Linux reports for this process, in bytes; 0 on other systems. Raises OSError if it is not listed."""
    status = _PROCESS / "status"
    if not status.exists():
        return 0
    found = re.search(rf"^{name}:\s+(\d+) kB$", status.read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"{status} has no {name}")
    return int(found[1]) * 1024


def available_bytes() -> int | None:
    """Memory that Linux reports as available without swapping; None if it reports nothing."""
    if not _MEMINFO.exists():
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else None
