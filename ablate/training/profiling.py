"""A trace of five training steps (`--profile`), for chrome://tracing and https://ui.perfetto.dev."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from ablate.machine.numerics import Numerics
from zoo.attending.fused import chosen_kernel
from zoo.spec import ModelSpec

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


# Names of the attention kernels that a run uses.


def attention_text(backends: Collection[str], spec: ModelSpec, context: int, numerics: Numerics) -> str | None:
    """`fused`; on a GPU with the kernels that torch chooses, `fused (cudnn)`; None without softmax attention."""
    names = sorted(backends)
    if numerics.device == "cuda" and "fused" in names:
        kernels = ", ".join(sorted(set(_kernels(spec, context, numerics))))
        names[names.index("fused")] = f"fused ({kernels})" if kernels else "fused"
    return ", ".join(names) or None


def _kernels(spec: ModelSpec, context: int, numerics: Numerics) -> Iterator[str]:
    """Kernels that torch chooses for one row of each kind of layer; the number of rows does not matter."""
    for mixer in dict.fromkeys(layer.mixer for layer in spec.layers):
        sizes = [getattr(mixer, name, None) for name in ("heads", "kv_heads", "head_dim", "v_dim")]
        heads, kv_heads, features, v_dim = (size if isinstance(size, int) else None for size in sizes)
        if heads is None or features is None:
            continue
        kv_heads, v_dim = kv_heads or heads, v_dim or features
        q, k, v = (
            torch.empty(
                (1, count, context, width), device=numerics.device, dtype=numerics.torch_dtype, requires_grad=True
            )
            for count, width in ((heads, features), (kv_heads, features), (kv_heads, v_dim))
        )
        yield chosen_kernel(q, k, v)
