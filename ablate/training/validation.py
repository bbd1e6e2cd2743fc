"""Scores over all that is held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ablate.training.batch import Batch, Loss
from ablate.training.reader import HeldOut

Autocast = Callable[[], AbstractContextManager[object]]


@torch.no_grad()
def validate(loss: Loss, batches: Iterable[Batch], autocast: Autocast) -> float:
    """Mean nats over all scored targets."""
    nats, counts = [], []
    for batch in batches:
        with autocast():
            nats.append(loss(batch.tokens, batch.targets, **batch.given)[1])
        counts.append(batch.counts.sum())
    weights: list[int] = torch.stack(counts).tolist()  # one wait for the device
    means: list[float] = torch.stack(nats).tolist()
    return float(np.average(means, weights=weights))


@torch.no_grad()
def accuracy(model: Callable[[Tensor], Tensor], batches: Iterable[Batch], autocast: Autocast) -> float:
    """Share of the scored targets that the model says: its likeliest token is the right one."""
    right, counts = [], []
    for batch in batches:
        with autocast():
            said = model(batch.tokens).argmax(dim=-1)
        right.append((said == batch.targets).sum())  # no token is −100
        counts.append(batch.counts.sum())
    return int(torch.stack(right).sum()) / int(torch.stack(counts).sum())


@dataclass(frozen=True)
class ValidationScores:
    """nats: mean loss per scored target. bits_per_byte: of text alone. accuracy: of synthetic tasks alone."""

    nats: float
    bits_per_byte: float | None
    accuracy: float | None


def score(model: nn.Module, loss: Loss, held_out: HeldOut, autocast: Autocast) -> ValidationScores:
    """What a model scores, without dropout or limits of capacity. loss: the model's, which may be compiled."""
    batches, n_bytes = held_out.batches, held_out.n_bytes
    model.eval()
    nats = validate(loss, batches, autocast)
    right = accuracy(model, batches, autocast) if n_bytes is None else None
    model.train()
    return ValidationScores(nats, None if n_bytes is None else bits_per_byte(nats, held_out.tokens, n_bytes), right)


def bits_per_byte(nats_per_token: float, tokens: int, n_bytes: int) -> float:
    """nats per token · tokens / (bytes · ln 2): the loss that compares across tokenizers. Tokens are scored targets."""
    return nats_per_token * tokens / (n_bytes * math.log(2))
