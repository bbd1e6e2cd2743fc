"""Durations of training steps, without synchronising with the device in between."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Protocol

import torch


class Laps(Protocol):
    """Marks on the device's own time line."""

    def begin(self) -> None:
        """A first step begins now."""
        ...

    def lap(self) -> None:
        """One step ends, and the next one begins."""
        ...

    def seconds(self) -> list[float]:
        """Seconds of every step since `begin`. Waits until the last one has ended."""
        ...


class HostLaps:
    """A device whose work is done when the call returns."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def begin(self) -> None:
        self._marks = [time.perf_counter()]

    def lap(self) -> None:
        self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        return [end - start for start, end in pairwise(self._marks)]


class CudaLaps:
    """Events in the current stream: work is queued ahead of them, so the host's clock would see little of it."""

    def __init__(self) -> None:
        self._marks: list[torch.cuda.Event] = []

    def begin(self) -> None:
        self._marks = []
        self.lap()

    def lap(self) -> None:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        self._marks.append(mark)

    def seconds(self) -> list[float]:
        self._marks[-1].synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in pairwise(self._marks)]


def laps_of(device: str) -> Laps:
    return CudaLaps() if device == "cuda" else HostLaps()
