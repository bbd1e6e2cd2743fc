"""The training loop: a generator of stretches of steps. Callers log, validate, save and stop between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, NamedTuple, TypeVar

import torch

from ablate.training.batch import Batch
from ablate.training.learner import Learner, StepOutput, Watcher
from ablate.training.optim import learning_rate
from ablate.training.profiling import StepTrace

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
