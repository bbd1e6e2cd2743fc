"""Reading the probes of a run around its optimiser steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

import zoo
from ablate.training.batch import Batch
from ablate.training.probes import ProbeSpec, load
from ablate.training.probes._kinds import GradientProbe, Parameter, ProbeSite, Reading, TapProbe, UpdateProbe
from evals.reading.passes import in_evaluation_mode
from store.documents import ProbeRecord
from zoo.site import Show

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
