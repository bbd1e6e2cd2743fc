"""The training loop: a generator of stretches of steps. Callers log, validate, save and stop between them.

A step takes a batch in and gives an update of the weights out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ablate.machine.numerics import Numerics, deterministic
from ablate.training.batch import Accumulation, Batch, Loss
from ablate.training.observing import StepTrace
from ablate.training.optim import learning_rate
from ablate.training.optimizers import Updates
from ablate.training.spec import TrainSpec
from ablate.training.weights import WeightAverage
from evals.costs.memory import forget


class Watcher(Protocol):
    """Observer of weight updates. `seconds` is the time that it has used so far, which does not count as training."""

    seconds: float

    def around(self, step: int, batch: Batch) -> AbstractContextManager[None]:
        """Context that is entered with the gradients of `batch`, and left after the update."""
        ...


class StepOutput(NamedTuple):
    """Measurements of a step, still on the device: nats per scored target before the update, and the global norm of the
    gradient before clipping."""

    nats: Tensor
    grad_norm: Tensor


@dataclass
class Learner:
    """A model's loss and the optimizer of its weights. A step never waits for the device."""

    loss: Loss
    optimizer: Updates
    spec: TrainSpec
    numerics: Numerics
    seed: int = 0
    accumulation: Accumulation = field(default_factory=Accumulation)
    average: WeightAverage | None = None
    after_update: Callable[[], None] = lambda: None
    """Hook after each optimizer step, for the model's own updates (`zoo.adapting`)."""
    counts: Sequence[Tensor] = ()
    """Counters that the model updates in each batch."""

    def learn(self, step: int, lr: float, batch: Batch, watcher: Watcher | None = None) -> StepOutput:
        """Update the weights by 1-based `step` on `batch`. lr: the schedule's learning rate."""
        with deterministic(self.spec.deterministic):
            nats = self._gradients(step, batch)
            with watcher.around(step, batch) if watcher else nullcontext():
                parameters = self._moved()
                norm = nn.utils.get_total_norm(_gradients_of(parameters))
                if self.spec.grad_clip is not None:
                    nn.utils.clip_grads_with_norm_(parameters, self.spec.grad_clip, norm)
                for group in self.optimizer.param_groups:
                    group["lr"] = lr * group["lr_factor"]
                self.optimizer.step()
                self.after_update()
                self.optimizer.zero_grad(set_to_none=True)
                learnt = StepOutput(nats, self.accumulation.group.whole(norm))
            if self.average is not None:
                self.average.update(step)
        return learnt

    def compile(self, batch: Batch) -> None:
        """Compile the loss, if it is to be compiled, for batches of this shape. Weights do not change, and no backward
        pass runs."""
        self.accumulation.compile(self.loss, batch, self.numerics.autocast)

    def _gradients(self, step: int, batch: Batch) -> Tensor:
        """Compute gradients, and return nats per scored target. Weights do not change, so that a pass that runs out of
        memory can start over with fewer rows."""
        while True:
            seed_step(self.seed, step, self.numerics.device, self.accumulation.group.rank)
            try:
                return self._summed(self.accumulation.gradients(self.loss, batch, self.numerics.autocast))
            except (RuntimeError, MemoryError) as error:
                self.accumulation.halve(batch, error)
            self.optimizer.zero_grad(set_to_none=True)
            for each in self.counts:
                each.zero_()
            forget(self.numerics.device)

    def _summed(self, nats: Tensor) -> Tensor:
        """Sum nats, counts and gradients over the group, and return the nats. A separate function, so that
        its tensors are freed before a step starts over."""
        gradients, group = _gradients_of(self._moved()), self.accumulation.group
        group.add_up([nats, *gradients])
        group.add_up(self.counts)
        return nats

    def _moved(self) -> list[nn.Parameter]:
        """The parameters that have a gradient."""
        return [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]


def _gradients_of(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def seed_step(seed: int, step: int, device: str, rank: int = 0) -> None:
    """Seed torch's generators, of the CPU and of `device`, for 1-based `step` of a run with `seed`: for dropout masks,
    the branches that stochastic depth drops, and the initial state of a loop.

    So every seed has masks of its own, and a run that is interrupted and resumed draws the same numbers as otherwise,
    whichever process continues it. rank: that of a process that shares batches with others; each draws its own numbers
    for its rows.

    The pair is hashed, so that adjacent steps and seeds have unrelated masks: torch's CPU generator uses no more than
    32 bits of its seed.
    """
    (word,) = np.random.SeedSequence((seed, step, rank) if rank else (seed, step)).generate_state(1, np.uint32).tolist()
    torch.default_generator.manual_seed(word)  # torch.manual_seed does the same, 200 times as slowly
    if device == "cuda":
        torch.cuda.manual_seed(word)


# Durations of training steps, without synchronising with the device in between.


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


T = TypeVar("T")
Batches = Callable[[int], Batch]
"""1-based step → its batch, on the host. Called from another thread."""


@dataclass(frozen=True)
class TrainingStep:
    """One step. `loss` is in nats per scored target, before the update; `seconds` counts training only; `lr` is the
    schedule's, before the factors of the optimizer's groups."""

    step: int
    tokens: int
    seconds: float
    loss: float
    lr: float
    grad_norm: float
    tokens_per_second: float


class PendingStep(NamedTuple):
    """A step whose numbers are still on the device. `watched`: seconds of it that observers used."""

    step: int
    lr: float
    learnt: StepOutput
    watched: float


def train(
    learner: Learner,
    batches: Batches,
    steps: int,
    rests: Callable[[int], bool] = lambda _step: True,
    *,
    done: int = 0,
    seconds: float = 0.0,
    watcher: Watcher | None = None,
    trace: StepTrace | None = None,
) -> Generator[list[TrainingStep]]:
    """Train the steps after `done`, up to `steps`. Yields stretches of steps, each up to a step for which `rests` is
    true, or the last.

    Losses are read once per stretch: reading waits for the device, which would then idle until the host has issued the
    next step. Only while the generator is suspended are the weights those after the last step yielded. seconds:
    training time of the steps before.
    """
    laps = CudaLaps() if learner.numerics.device == "cuda" else Laps()
    stretch: list[PendingStep] = []
    numbers = range(done + 1, steps + 1)
    try:
        laps.begin()
        for step, batch in zip(numbers, prefetch(batches, numbers), strict=True):
            before, lr = _aside(watcher, trace), learning_rate(step, steps, learner.spec)
            with trace.around(step) if trace else nullcontext():
                learnt = learner.learn(step, lr, batch.to(learner.numerics.device), watcher)
            stretch.append(PendingStep(step, lr, learnt, _aside(watcher, trace) - before))
            laps.lap()
            if step == steps or rests(step):
                found = _read(stretch, laps.seconds(), seconds, learner.spec.tokens)
                seconds = found[-1].seconds
                yield found
                stretch = []
                laps.begin()
    finally:
        if trace is not None:
            trace.close()


def _aside(watcher: Watcher | None, trace: StepTrace | None) -> float:
    """Seconds so far that observers used, which do not count as training."""
    return (watcher.seconds if watcher else 0.0) + (trace.seconds if trace else 0.0)


def _read(stretch: list[PendingStep], laps: list[float], seconds: float, tokens: int) -> list[TrainingStep]:
    """The steps of a stretch, which began after `seconds` of training; a watcher's time is subtracted."""
    nats, norms = (torch.stack(values).tolist() for values in zip(*(taken.learnt for taken in stretch), strict=True))
    found = []
    for taken, lap, loss, norm in zip(stretch, laps, nats, norms, strict=True):
        took = lap - taken.watched
        seconds += took
        found.append(TrainingStep(taken.step, taken.step * tokens, seconds, loss, taken.lr, norm, tokens / took))
    return found


def prefetch(make: Callable[[int], T], numbers: Iterable[int]) -> Iterator[T]:
    """`make(number)` for each number, in order; while the caller uses one, a thread makes the next."""
    remaining = iter(numbers)
    with ThreadPoolExecutor(1, "prefetch") as thread:
        coming = [thread.submit(make, number) for number in islice(remaining, 1)]
        for number in remaining:
            made = coming.pop().result()
            coming.append(thread.submit(make, number))
            yield made
        for last in coming:
            yield last.result()
