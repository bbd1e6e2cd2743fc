"""Timing on devices that run asynchronously."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from store.documents import Quartiles

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
