"""Scores on a held-out part, during training and after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.machine.numerics import Numerics, deterministic
from ablate.training.average import ScoredWeights
from ablate.training.batch import Batch
from ablate.training.reader import HeldOut, TrainingReader
from store.documents import HeldOutPart, ItemLoss
from zoo.model import Decoder

Autocast = Callable[[], AbstractContextManager[object]]


def validation_is_due(step: int, steps: int, share: float) -> bool:
    """Whether a run of so many steps is validated after 1-based `step`. share: `validate_every`."""
    every = max(1.0, share * steps)
    return step == steps or step // every > (step - 1) // every


@torch.no_grad()
def validate(model: Decoder, batches: Iterable[Batch], autocast: Autocast) -> NDArray[np.float64]:
    """(S,): nats of every scored target, in the order of the batches."""
    found = []
    for batch in batches:
        with autocast():
            nats = model.nats(batch.tokens, batch.targets, **batch.given)
        found.append(nats[batch.counts])
    return torch.cat(found).double().cpu().numpy()


@torch.no_grad()
def accuracy(model: Callable[[Tensor], Tensor], batches: Iterable[Batch], autocast: Autocast) -> float:
    """Share of the scored targets that are the model's likeliest token."""
    right, counts = [], []
    for batch in batches:
        with autocast():
            said = model(batch.tokens).argmax(dim=-1)
        right.append((said == batch.targets).sum())  # no token is −100
        counts.append(batch.counts.sum())
    return int(torch.stack(right).sum()) / int(torch.stack(counts).sum())


@dataclass(frozen=True)
class HeldOutScores:
    """nats: mean loss per scored target. bits_per_byte: for text only. accuracy: for synthetic tasks only.
    items: the summed loss by document or example."""

    nats: float
    bits_per_byte: float | None
    accuracy: float | None
    items: tuple[ItemLoss, ...]


@dataclass(frozen=True)
class Validation:
    """Scores of a model in training, with the weights that would be stored now."""

    model: Decoder
    reader: TrainingReader
    numerics: Numerics
    average: ScoredWeights | None
    """An average that is scored in place of the model's weights, if any."""

    @cached_property
    def _rows_on_the_way(self) -> HeldOut:
        return self.reader.held_out("judging", whole=False)

    def on_the_way(self) -> HeldOutScores:
        """Scores on some rows of the judging part. Afterwards the model has its own weights again."""
        with self.average.in_model() if self.average else nullcontext():
            return self._score(self._rows_on_the_way)

    def at_the_end(self, part: HeldOutPart) -> tuple[HeldOutScores, HeldOutScores | None]:
        """Scores on a whole part and, if it is the test part, on the judging part. The model keeps averaged weights."""
        if self.average is not None:
            self.average.settle()
        found = self._score(self.reader.held_out(part))
        return found, self._score(self.reader.held_out("judging")) if part == "test" else None

    def _score(self, held_out: HeldOut) -> HeldOutScores:
        with deterministic(self.reader.spec.deterministic):
            return score(self.model, held_out, self.numerics.autocast)


def score(model: Decoder, held_out: HeldOut, autocast: Autocast) -> HeldOutScores:
    """Score a model in evaluation mode: without dropout and without capacity limits of experts."""
    model.eval()
    nats = validate(model, held_out.batches, autocast)
    right = accuracy(model, held_out.batches, autocast) if held_out.n_bytes is None else None
    model.train()
    mean = float(nats.mean())
    return HeldOutScores(mean, bits_per_byte(mean, held_out), right, _by_item(nats, held_out))


def bits_per_byte(nats_per_token: float, held_out: HeldOut) -> float | None:
    """nats per token · tokens / (bytes · ln 2), a loss that is comparable across tokenizers; None if the data are not
    text. Tokens are scored targets."""
    if held_out.n_bytes is None:
        return None
    return nats_per_token * held_out.tokens / (held_out.n_bytes * math.log(2))


def _by_item(nats: NDArray[np.float64], held_out: HeldOut) -> tuple[ItemLoss, ...]:
    """Sums over the scored targets of each document or example that has any; empty if a loss was not finite."""
    if not np.isfinite(nats).all():
        return ()
    items, where = np.unique(held_out.items, return_inverse=True)
    sums, targets = np.bincount(where, nats).tolist(), np.bincount(where).tolist()
    sizes = [None] * len(items) if held_out.sizes is None else np.bincount(where, held_out.sizes).astype(int).tolist()
    rows = zip(items.tolist(), sums, targets, sizes, strict=True)
    return tuple(ItemLoss(item=item, nats=nats, targets=count, bytes=size) for item, nats, count, size in rows)
