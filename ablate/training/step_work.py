"""Kernels, bytes and products of an arm's training step on a GPU, counted without one, with the memory that it needs.

The step is training's own, taken on tensors that have a shape and no data. A whole batch is one pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

import zoo
from ablate.machine.numerics import Numerics
from ablate.training.batch import Batch
from ablate.training.memory import Live, learner_of, whole_batch
from ablate.training.spec import TrainSpec
from evals.costs.operators import Operators, Work, as_compiled, as_issued, counted
from zoo.attend import executed_backends
from zoo.spec import ModelSpec


_STATES = 4
"""Numbers in float32 for each weight: itself, its gradient, and AdamW's two moments."""


@dataclass(frozen=True)
class StepWork:
    """work: of a step, compiled where training is. peak_bytes: the most that is alive; of a compiled step an estimate:
    weights with their gradients and two moments, what is kept for the backward pass, and the largest kernel's results.
    attention: the backends that a GPU would take."""

    work: Work
    peak_bytes: int
    attention: str | None


def step_work(spec: ModelSpec, train: TrainSpec, width: int | None = None) -> StepWork | None:
    """Work of one training step; None where its shapes depend on its data: experts that drop what exceeds their
    capacity. width: tokens of the widest rows; None: the context. Takes a second or two."""
    return _counted(json.dumps(spec.dump()), train.model_dump_json(), width or train.context)


@lru_cache(maxsize=256)
def _counted(model: str, train: str, width: int) -> StepWork | None:
    spec, settings = zoo.parse(json.loads(model)), TrainSpec.model_validate_json(train)
    numerics = Numerics("cpu", settings.dtype, "highest")
    listening = executed_backends(training=True)
    with torch.random.fork_rng(), FakeTensorMode() as mode, Live() as live, listening as backends:
        with counted(compiled=settings.compile) as operators:
            learner, built = learner_of(spec, settings, numerics, None, False)
            batch = whole_batch(settings, spec, width).each(mode.from_tensor)
            operators.kernels.clear()
            try:
                learner.learn(1, 0.0, batch, _ThenUpdate(operators))
            except (DynamicOutputShapeException, DataDependentOutputException):
                return None
    kernels = operators.kernels
    work = as_compiled(kernels) if settings.compile else as_issued(kernels)
    largest = max(sum(use.bytes for use in kernel.writes) for kernel in kernels)
    weights = 4 * _STATES * sum(parameter.numel() for parameter in built.parameters())
    peak = live.peak if work.kept_bytes is None else min(live.peak, weights + round(work.kept_bytes) + largest)
    return StepWork(work, peak, ", ".join(sorted(backends)) or None)


class _ThenUpdate:
    """Tells which kernels are the update's."""

    seconds = 0.0

    def __init__(self, operators: Operators) -> None:
        self.operators = operators

    @contextmanager
    def around(self, step: int, batch: Batch) -> Iterator[None]:
        self.operators.phase = "update"
        yield
