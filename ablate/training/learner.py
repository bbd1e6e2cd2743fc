"""One training step: a batch in, an update of the weights out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ablate.machine.numerics import Numerics, deterministic
from ablate.training.accumulation import Accumulation
from ablate.training.average import WeightAverage
from ablate.training.batch import Batch, Loss
from ablate.training.optimizers import Updates
from ablate.training.spec import TrainSpec
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
