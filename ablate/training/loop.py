"""The training loop: a generator of steps. Callers log, validate, save and stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from ablate.training.batch import Batch
from ablate.training.optimizers import Updates
from ablate.training.schedule import learning_rate
from ablate.training.spec import TrainSpec

Loss = Callable[..., tuple[Tensor, Tensor]]
"""(tokens (B, T), targets (B, T), what else the batch gives) → (what is minimised, nats per scored target)."""

Batches = Callable[[int], Batch]
"""1-based step → its batch."""


class Watcher(Protocol):
    """Looks on while a step updates the weights. `seconds` is the time it has taken so far, which is not training."""

    seconds: float

    def around(self, step: int, batch: Batch) -> AbstractContextManager[None]:
        """Entered with the gradients of `batch`, left after the update."""
        ...


@dataclass(frozen=True)
class Done:
    """The steps taken before, and the seconds of training that they took."""

    step: int = 0
    seconds: float = 0.0


NOTHING = Done()


@dataclass(frozen=True)
class Step:
    """One step. `loss` is in nats per token and was measured before the update; `seconds` counts training only; `lr` is
    the schedule's, before the factors of the optimizer's groups."""

    step: int
    tokens: int
    seconds: float
    loss: float
    lr: float
    grad_norm: float
    tokens_per_second: float

    def record(self) -> dict[str, float]:
        return asdict(self)


def train(
    loss: Loss,
    optimizer: Updates,
    batches: Batches,
    spec: TrainSpec,
    steps: int,
    autocast: Callable[[], AbstractContextManager[object]],
    *,
    done: Done = NOTHING,
    watcher: Watcher | None = None,
) -> Iterator[Step]:
    """Train what is not done of `steps` steps."""
    seconds = done.seconds
    for step in range(done.step + 1, steps + 1):
        started, watched = time.perf_counter(), watcher.seconds if watcher else 0.0
        lr = learning_rate(step, steps, spec)
        batch = batches(step)
        with autocast():
            objective, nats = loss(batch.tokens, batch.targets, **batch.given)
        objective.backward()
        with watcher.around(step, batch) if watcher else nullcontext():
            grad_norm = _update(optimizer, lr, spec.grad_clip)
        values = nats.item(), grad_norm.item()  # waits for the device, so the clock is honest
        took = time.perf_counter() - started - (watcher.seconds - watched if watcher else 0.0)
        seconds += took
        tokens = spec.batch * spec.context
        yield Step(step, step * tokens, seconds, values[0], lr, values[1], tokens / took)


def _update(optimizer: Updates, lr: float, grad_clip: float | None) -> Tensor:
    """One optimiser step; the global gradient norm before clipping."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in parameters])
    if grad_clip is not None:
        nn.utils.clip_grads_with_norm_(parameters, grad_clip, norm)
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_factor"]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


@torch.no_grad()
def validate(loss: Loss, batches: Iterable[Batch], autocast: Callable[[], AbstractContextManager[object]]) -> float:
    """Mean nats over all scored targets."""
    total, count = 0.0, 0
    for batch in batches:
        with autocast():
            _, nats = loss(batch.tokens, batch.targets, **batch.given)
        total += nats.item() * batch.scored
        count += batch.scored
    return total / count


@torch.no_grad()
def accuracy(
    model: Callable[[Tensor], Tensor], batches: Iterable[Batch], autocast: Callable[[], AbstractContextManager[object]]
) -> float:
    """Share of the scored targets that the model says: its likeliest token is the right one."""
    right, count = 0, 0
    for batch in batches:
        with autocast():
            said = model(batch.tokens).argmax(dim=-1)
        right += int((said == batch.targets).sum())  # no token is −100
        count += batch.scored
    return right / count


def bits_per_byte(nats_per_token: float, tokens: int, n_bytes: int) -> float:
    """nats per token · tokens / (bytes · ln 2): the loss that compares across tokenizers. Tokens are scored targets."""
    return nats_per_token * tokens / (n_bytes * math.log(2))
