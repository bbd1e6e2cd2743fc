"""Forecast of training's peak memory: a step runs on fake tensors, with a shape but no data, and the bytes of all that
are alive at a time are added up: weights, gradients, optimizer state, and activations for the backward pass.

The step is training's own, so nothing is declared twice. It runs eagerly: a compiled step keeps fewer intermediates of
fused operations. Workspaces of kernels are not counted.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import zoo
from ablate.machine.numerics import Numerics
from ablate.training.batch import Accumulation, Batch
from ablate.training.loop import Learner
from ablate.training.optim import build_optimizer
from ablate.training.spec import TrainSpec
from zoo.attend import executed_backends
from zoo.spec import ModelSpec

PROCESS_BYTES = 415 * 2**20
"""Resident memory of a worker before it trains: the interpreter, torch, the evaluation harness."""
HEAP = 1.24
"""Resident memory of a CPU process per byte alive: glibc's heap fragments. Fitted to eleven architectures, each then
predicted to within a tenth (docs/benchmarks/memory_cpu.md)."""


class StepForecast(NamedTuple):
    """peak_memory_bytes: as in a result, of the allocator on CUDA, of the process on a CPU. attention: the backends of
    a step. Both are None if the shapes of a step depend on its data: experts that drop tokens beyond their capacity.
    """

    peak_memory_bytes: int | None = None
    attention: str | None = None


def foreseen(
    spec: ModelSpec,
    train: TrainSpec,
    numerics: Numerics,
    *,
    width: int | None = None,
    rows: int | None = None,
    recompute: bool = False,
) -> StepForecast:
    """Predicted memory of a training step.

    Args:
        width: tokens of the widest rows; None: the context.
        rows: rows of a batch per pass; None: all.
        recompute: see `Execution`.
    """
    alive = _alive(json.dumps(spec.dump()), train.model_dump_json(), numerics, width or train.context, rows, recompute)
    if alive.peak_memory_bytes is None or numerics.device != "cpu":
        return alive
    return alive._replace(peak_memory_bytes=PROCESS_BYTES + round(HEAP * alive.peak_memory_bytes))


def alive_at_peak(learner: Learner, model: zoo.Decoder, batch: Batch, live: Live) -> int:
    """The most bytes alive in any step but the first, which begins without optimizer state. `live` must be counting.

    If the batch is split, all parts but the first find gradients: one of those is simulated.
    """
    before, rows = live.bytes, learner.accumulation.rows_of(batch)
    of_passes: list[int] = []
    if rows < len(batch):
        for group in learner.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
    learner.learn(1, 0.0, batch.rows(slice(rows)), BeforeUpdate(lambda: of_passes.append(live.peak)))
    # Passes of later steps also hold the optimizer state, which this step's update allocates.
    found = max(of_passes[0] + live.bytes - before, live.peak)
    if rows == len(batch):
        return found
    model.eval()
    with torch.no_grad(), learner.numerics.autocast():
        learner.loss(batch.tokens, batch.targets, **batch.given)  # validation takes whole batches
    return max(found, live.peak)


class Live(TorchDispatchMode):
    """Counts the bytes of the storages that operations inside the block return, as long as these are alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, operation: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        out = operation(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._note(leaf.untyped_storage())
        return out

    def _note(self, storage: torch.UntypedStorage) -> None:
        place, size = storage._cdata, storage.nbytes()
        if place in self._known:
            return

        def freed(_: object) -> None:
            del self._known[place]
            self.bytes -= size

        self._known[place] = weakref.ref(storage, freed)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)


@dataclass
class BeforeUpdate:
    """A watcher that calls `act` between the backward pass and the update."""

    act: Callable[[], None]
    seconds: float = 0.0

    @contextmanager
    def around(self, step: int, batch: Batch) -> Iterator[None]:
        self.act()
        yield


@lru_cache(maxsize=256)
def _alive(model: str, train: str, numerics: Numerics, width: int, rows: int | None, recompute: bool) -> StepForecast:
    """`alive_at_peak` of a model and a training spec in JSON, cached: a notebook plans the same arms repeatedly."""
    spec, settings = zoo.parse(json.loads(model)), TrainSpec.model_validate_json(train)
    listening = executed_backends(training=True)
    with torch.random.fork_rng(), FakeTensorMode() as mode, Live() as live, listening as backends:
        try:
            learner, built = learner_of(spec, settings, numerics, rows, recompute)
            batch = whole_batch(settings, spec, width).each(mode.from_tensor).to(numerics.device)
            return StepForecast(alive_at_peak(learner, built, batch, live), ", ".join(sorted(backends)) or None)
        except DynamicOutputShapeException:
            return StepForecast()


def learner_of(
    spec: ModelSpec, train: TrainSpec, numerics: Numerics, rows: int | None, recompute: bool
) -> tuple[Learner, zoo.Decoder]:
    with torch.device(numerics.device):
        model = zoo.Decoder(spec).train()
    for stack in filter(None, (model, model.encoder)):
        stack.recompute = recompute
    part = train.part.build(model, seed=0) if train.part else model
    optimizer = build_optimizer(part, zoo.roles(part), train, spec.d_model, spec.n_layers)
    return Learner(model.loss, optimizer, train, numerics, 0, Accumulation(rows, spec.couples_rows)), model


def whole_batch(train: TrainSpec, spec: ModelSpec, width: int) -> Batch:
    """One whole batch of dummy text, in rows of `width` tokens."""
    windows = np.zeros((train.tokens // width, width + 1), dtype=np.int64)
    return train.objective.batch(windows, spec.vocab_size, np.random.default_rng(0), eos=0)
