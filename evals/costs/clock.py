"""Timing on devices that run asynchronously."""

from __future__ import annotations

from collections.abc import Callable

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
