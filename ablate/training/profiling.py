"""A trace of five training steps (`--profile`), for chrome://tracing and https://ui.perfetto.dev."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

LOG = logging.getLogger(__name__)
FIRST, LAST = 10, 14
"""Steps of the process that are traced: the first ones compile, and allocate memory."""


class StepTrace:
    """Traces some steps of this process, and writes the trace to `path` when the last of them has ended.

    seconds: time that it took to start and write, which does not count as training. The traced steps themselves are
    slower than others.
    """

    def __init__(self, path: Path, device: str) -> None:
        self.path, self.seconds, self._taken = path, 0.0, 0
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
        self._profile = profile(activities=kinds)

    @contextmanager
    def around(self, step: int) -> Iterator[None]:
        """Context around the 1-based `step` of the run."""
        self._taken += 1
        if self._taken == FIRST:
            with self._aside():
                self._profile.start()
        with torch.profiler.record_function(f"step {step}"):
            yield
        if self._taken == LAST:
            with self._aside():
                self._profile.stop()
                beside = self.path.with_name(f"new-{self.path.name}")
                self._profile.export_chrome_trace(str(beside))  # compressed, by its name
                beside.replace(self.path)
            LOG.info("trace of steps %d to %d: %s", step - (LAST - FIRST), step, self.path)

    def close(self) -> None:
        """End a trace that no step will complete, so that the next run of this process can begin one."""
        if FIRST <= self._taken < LAST:
            self._profile.stop()

    @contextmanager
    def _aside(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began
