"""Durations of training steps, without synchronising with the device in between."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import torch


class Laps:
    """Times of step boundaries, on a device whose work is done when a call returns."""

    def __init__(self) -> None:
        self._marks: list[Any] = []

    def begin(self) -> None:
        """Mark the start of the first step."""
        self._marks = []
        self.lap()

    def lap(self) -> None:
        """Mark the end of a step, and the start of the next one."""
        self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Seconds of every step since `begin`. Waits until the last one has ended."""
        return [end - start for start, end in pairwise(self._marks)]


class CudaLaps(Laps):
    """CUDA events in the current stream: kernels run asynchronously, so the host's clock would not measure them."""

    def lap(self) -> None:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        self._marks.append(mark)

    def seconds(self) -> list[float]:
        self._marks[-1].synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in pairwise(self._marks)]
