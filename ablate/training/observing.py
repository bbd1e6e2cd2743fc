"""Observation of training steps: the probes of a run, read around its optimiser steps, and a trace.

The trace is of five training steps (`--profile`), for chrome://tracing and https://ui.perfetto.dev.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import zoo
from ablate.machine.numerics import Numerics
from ablate.training.batch import Batch
from ablate.training.probes import ProbeSpec, load
from ablate.training.probes._kinds import GradientProbe, Parameter, ProbeSite, Reading, TapProbe, UpdateProbe
from evals.reading.passes import in_evaluation_mode
from store.documents import ProbeRecord
from zoo.attending.fused import chosen_kernel
from zoo.site import Show
from zoo.spec import ModelSpec

Named = tuple[str, Reading]


@dataclass
class Prober:
    """Reads the probes that are due and passes their records to `write`, once for each probed step.

    A forward pass of its own, eager and without gradients or dropout, serves the `TapProbe`s, since that of training
    may be compiled. `seconds` is the time that probing took, which does not count as training.
    """

    model: zoo.Decoder
    spec: ProbeSpec
    steps: int
    autocast: Callable[[], AbstractContextManager[object]]
    write: Callable[[list[ProbeRecord]], None]
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.probes = {name: load(name) for name in self.spec.which}
        self.roles: Mapping[str, str] = zoo.roles(self.model)

    @contextmanager
    def around(self, step: int, batch: Batch) -> Iterator[None]:
        """Context around the update of 1-based `step`, entered when the gradients of `batch` are ready."""
        if not self.spec.due(step, self.steps):
            yield
            return
        with self._timed():
            found = self._shown(batch)
            found += self._read(GradientProbe, [p for p in self._parameters({}) if p.gradient is not None])
            before: dict[str, Tensor] = {}
            if any(isinstance(probe, UpdateProbe) for probe in self.probes.values()):
                before = {name: p.detach().clone() for name, p in self.model.named_parameters() if p.grad is not None}
        yield
        with self._timed():
            found += self._read(UpdateProbe, [p for p in self._parameters(before) if p.before is not None])
            values = torch.stack([reading.value.float() for _, reading in found]).tolist() if found else []
            records = [
                ProbeRecord(step=step, probe=probe, layer=reading.layer, name=reading.name, value=value)
                for (probe, reading), value in zip(found, values, strict=True)
            ]
            self.write(records)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the time of the block, without work that was queued on the device before."""
        if next(self.model.parameters()).is_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began

    @torch.no_grad()
    def _shown(self, batch: Batch) -> list[Named]:
        listeners = {name: probe for name, probe in self.probes.items() if isinstance(probe, TapProbe)}
        found: list[Named] = []

        def hear(path: str, show: Show) -> None:
            place = ProbeSite.of(path)
            for name, probe in listeners.items():
                if place.name == probe.tap:
                    readings = probe.read(show()).items()
                    found.extend((name, Reading(place.layer, key, value)) for key, value in readings)

        if listeners:
            with in_evaluation_mode(self.model), zoo.listening(self.model, hear), self.autocast():
                self.model.hidden(batch.tokens, **batch.given)
        return found

    @torch.no_grad()
    def _read(self, kind: type[GradientProbe | UpdateProbe], parameters: list[Parameter]) -> list[Named]:
        probes = [(name, probe) for name, probe in self.probes.items() if isinstance(probe, kind)]
        return [(name, reading) for name, probe in probes for reading in probe.read(parameters)]

    def _parameters(self, before: Mapping[str, Tensor]) -> list[Parameter]:
        return [
            Parameter(ProbeSite.of(name), self.roles[name], p.detach(), p.grad, before.get(name))
            for name, p in self.model.named_parameters()
        ]


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
