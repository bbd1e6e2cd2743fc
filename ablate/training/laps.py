"""Durations of training steps, without synchronising with the device in between."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import torch


class Laps:
    """Marks on the time line of a device whose work is done when the call returns."""

    def __init__(self) -> None:
        self._marks: list[Any] = []

    def begin(self) -> None:
        """A first step begins now."""
        self._marks = []
        self.lap()

    def lap(self) -> None:
        """One step ends, and the next one begins."""
        self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Seconds of every step since `begin`. Waits until the last one has ended."""
        return [end - start for start, end in pairwise(self._marks)]


class CudaLaps(Laps):
    """Events in the current stream: work is queued ahead of them, so the host's clock would see little of it."""

    def lap(self) -> None:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        self._marks.append(mark)

    def seconds(self) -> list[float]:
        self._marks[-1].synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in pairwise(self._marks)]
