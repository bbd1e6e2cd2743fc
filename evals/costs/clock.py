"""Timing on devices that run asynchronously, and clock, power and temperature of a GPU meanwhile: a speed that was
measured at half the clock is another speed.

torch reads a GPU's sensors through NVIDIA's management library, which is a package (`pip install nvidia-ml-py`).
Without it, or if the driver does not report them, nothing is recorded.
"""

from __future__ import annotations

import importlib.util
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from store.documents import GpuState, Quartiles

Clock = Callable[[], float]
"""Seconds since some moment: `time.perf_counter`, or `time.process_time`, which excludes time of other processes."""


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(work: Callable[[], object], device: torch.device, clock: Clock) -> float:
    """Seconds that `work` takes on a device."""
    synchronise(device)
    start = clock()
    work()
    synchronise(device)
    return clock() - start


def quartiles(values: list[float]) -> Quartiles:
    """Median and quartiles, linearly interpolated."""
    q25, median, q75 = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Quartiles(median=median, q25=q25, q75=q75)


# Time that a thread waited for a processor that other programs used.

SCHEDSTAT = Path("/proc/thread-self/schedstat")


@dataclass
class Waiting:
    """Filled when the `with` block ends.

    share: waiting time over the time in which this thread was ready to run; None if the system does not report it.
    """

    share: float | None = None


@contextmanager
def waiting() -> Iterator[Waiting]:
    """Share of the block in which this thread waits. Linux counts nanoseconds on a processor, and waiting for one."""
    found, before = Waiting(), _counted()
    yield found
    after = _counted()
    if before is not None and after is not None:
        worked, waited = (end - start for start, end in zip(before, after, strict=True))
        found.share = waited / (worked + waited) if worked + waited else 0.0


def _counted() -> tuple[int, int] | None:
    try:
        worked, waited, _ = map(int, SCHEDSTAT.read_text(encoding="utf-8").split())
    except (OSError, ValueError):  # another system, or a kernel that does not count
        return None
    return worked, waited


SAMPLE_SECONDS = 1.0
"""Seconds between two samples: drivers average over about as long."""
SLOWED_BY = {
    0x04: "power limit",
    0x08: "hardware slowdown",
    0x20: "heat",
    0x40: "heat, in hardware",
    0x80: "power brake",
}
"""Bits of nvmlDeviceGetCurrentClocksThrottleReasons that lower the clock below what the work could use."""


class Sample(NamedTuple):
    """One sample of the sensors: MHz of the multiprocessors, watts, degrees Celsius, and what lowers the clock."""

    clock_mhz: float
    power_watts: float
    celsius: float
    slowed_by: tuple[str, ...]


@dataclass
class Sensors:
    """Filled while the `with` block runs."""

    samples: list[Sample] = field(default_factory=list)

    @property
    def state(self) -> GpuState | None:
        """All samples together; None without samples."""
        if not self.samples:
            return None
        clocks, powers, heat, _ = zip(*self.samples, strict=True)
        slowed = Counter(reason for sample in self.samples for reason in sample.slowed_by)
        return GpuState(
            clock_mhz=quartiles(list(clocks)),
            power_watts=quartiles(list(powers)),
            celsius=max(heat),
            slowed_by={reason: count / len(self.samples) for reason, count in sorted(slowed.items())},
            samples=len(self.samples),
        )


@contextmanager
def watched(device: torch.device | str) -> Iterator[Sensors]:
    """Read the sensors of the device inside the block, once a second. A CPU has none."""
    found, over = Sensors(), threading.Event()
    read = _reader() if torch.device(device).type == "cuda" else None
    if read is None:
        yield found
        return

    def look() -> None:
        while not over.wait(SAMPLE_SECONDS) and (sample := read()) is not None:
            found.samples.append(sample)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _reader() -> Callable[[], Sample | None] | None:
    """Function that samples the GPU of this process; None if the package is not installed."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml  # noqa: PLC0415 (an extra)

    def read() -> Sample | None:
        try:
            clock, power, heat = torch.cuda.clock_rate(), torch.cuda.power_draw() / 1000, torch.cuda.temperature()
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
            reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        except (pynvml.NVMLError, RuntimeError):  # a part of a GPU (MIG) has no sensors of its own
            return None
        return Sample(clock, power, heat, tuple(name for bit, name in SLOWED_BY.items() if reasons & bit))

    return read
