"""Kernels, bytes and matrix products of a training step on a GPU, counted without one, and the memory that it needs.

The step is training's own, run on fake tensors, with a shape but no data. A whole batch is one pass.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

import zoo
from ablate.machine.numerics import Numerics
from ablate.training.spec import TrainSpec
from ablate.wings.foretell.fusion import as_compiled
from ablate.wings.foretell.operators import Kernel, Work, as_issued, counted
from ablate.wings.foretell.step_memory import BeforeUpdate, Live, learner_of, whole_batch
from zoo.attend import executed_backends
from zoo.spec import ModelSpec

_STATES = 4
"""float32 numbers for each weight: itself, its gradient, and AdamW's two moments."""


@dataclass(frozen=True)
class StepWork:
    """work: that of a step, compiled if training is. peak_bytes: most bytes alive; for a compiled step an estimate:
    weights with their gradients and two moments, activations for the backward pass, and the largest kernel's results.
    attention: backends of attention in the step."""

    work: Work
    peak_bytes: int
    attention: str | None


def step_work(spec: ModelSpec, train: TrainSpec, width: int | None = None) -> StepWork | None:
    """Work of one training step; None if its shapes depend on its data: experts that drop tokens beyond their capacity.
    width: tokens of the widest rows; None: the context. Takes a second or two."""
    return _counted(json.dumps(spec.dump()), train.model_dump_json(), width or train.context)


@lru_cache(maxsize=256)
def _counted(model: str, train: str, width: int) -> StepWork | None:
    spec, settings = zoo.parse(json.loads(model)), TrainSpec.model_validate_json(train)
    found = _traced(spec, settings, width)
    if found is None:
        return None
    work = as_compiled(found.kernels) if settings.compile else as_issued(found.kernels)
    peak = found.peak_bytes
    if work.kept_bytes is not None:
        largest = max(sum(use.bytes for use in kernel.writes) for kernel in found.kernels)
        peak = min(peak, 4 * _STATES * found.parameters + round(work.kept_bytes) + largest)
    return StepWork(work, peak, found.attention)


def kernels_of(spec: ModelSpec, train: TrainSpec) -> tuple[Kernel, ...]:
    """The kernels of a step, in the order issued; none if its shapes depend on its data."""
    found = _traced(spec, train, train.context)
    return () if found is None else found.kernels


class _Traced(NamedTuple):
    kernels: tuple[Kernel, ...]
    peak_bytes: int
    parameters: int
    attention: str | None


def _traced(spec: ModelSpec, train: TrainSpec, width: int) -> _Traced | None:
    numerics = Numerics("cpu", train.dtype, "highest")
    listening = executed_backends(training=True)
    counting = counted(compiled=train.compile)
    with (
        torch.random.fork_rng(),
        FakeTensorMode() as mode,
        Live() as live,
        listening as backends,
        counting as operators,
    ):
        learner, model = learner_of(spec, train, numerics, None, False)
        batch = whole_batch(train, spec, width).each(mode.from_tensor)
        operators.kernels.clear()

        def update_begins() -> None:
            operators.phase = "update"

        try:
            learner.learn(1, 0.0, batch, BeforeUpdate(update_begins))
        except (DynamicOutputShapeException, DataDependentOutputException):
            return None
    size = sum(parameter.numel() for parameter in model.parameters())
    return _Traced(tuple(operators.kernels), live.peak, size, ", ".join(sorted(backends)) or None)
