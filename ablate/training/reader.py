"""Data of a run: training batches, the held-out parts, and scores on these during training and after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.data.corpus import Examples, HeldOutRows, Rows, width
from ablate.machine.numerics import Numerics, deterministic
from ablate.training.batch import Batch
from ablate.training.spec import TrainSpec
from ablate.training.weights import ScoredWeights
from store.documents import HeldOutPart, ItemLoss
from zoo.model import Decoder


class TrainingData(Protocol):
    """The data interface of training. See `ablate.data`."""

    @property
    def eos(self) -> int | None:
        """Id before each document and after the last; None if the data are examples."""

    def widths(self, context: int) -> tuple[int, ...]: ...

    def batch(self, step: int, *, batch: int, context: int, seed: int) -> Rows: ...

    def held_out_rows(self, part: HeldOutPart, context: int) -> Sequence[HeldOutRows]: ...


ON_THE_WAY = 8
"""Validation during training reads one in this many rows of the judging part; the final one reads all."""
FEWEST_ROWS = 32
"""Least number of rows that it reads, if there are as many."""
VALIDATION = 2**64
"""Seed, beyond those of runs, of an objective's random targets on held-out text."""


@dataclass(frozen=True)
class HeldOut:
    """Rows of a held-out part with their targets, the same for every seed and arm.

    items, sizes: (S,), in the order of the scored targets: number of each target's document or example, and its bytes
    of text; `sizes` is None if the data are not text.
    """

    batches: list[Batch]
    items: NDArray[np.int64]
    sizes: NDArray[np.int64] | None

    @property
    def tokens(self) -> int:
        """Number of scored targets."""
        return len(self.items)

    def after(self, before: Sequence[int]) -> HeldOut:
        """The same targets, in windows that begin with these tokens (see `Batch.after`)."""
        return replace(self, batches=[batch.after(before) for batch in self.batches])

    @property
    def n_bytes(self) -> int | None:
        """Bytes of text of all scored targets; None if the data are not text."""
        return None if self.sizes is None else int(self.sizes.sum())


@dataclass(frozen=True)
class TrainingReader:
    """A corpus as one run reads it. vocabulary: number of the model's ids, for objectives with ids of their own.
    before: number of batches read before the first step."""

    corpus: TrainingData
    spec: TrainSpec
    vocabulary: int
    seed: int
    device: str
    before: int = 0

    def batch(self, step: int) -> Batch:
        """The batch of 1-based `step`, on the host."""
        spec = self.spec
        rows = self.corpus.batch(self.before + step - 1, batch=spec.batch, context=spec.context, seed=self.seed)
        batch = self._asked(rows, (self.seed, step))
        return batch.pinned() if self.device == "cuda" else batch

    def held_out(self, part: HeldOutPart, whole: bool = True) -> HeldOut:
        """A held-out part, on the device, in batches no larger than those of training: all of it, or rows spread evenly
        over it.

        Batches of one width have one shape, the last one padded with rows that are not scored, so that kernels are
        selected once for each width.
        """
        batches: list[Batch] = []
        items: list[NDArray[np.int64]] = []
        sizes: list[NDArray[np.int64]] = []
        for found in self.corpus.held_out_rows(part, self.spec.context):
            every = 1 if whole else max(1, min(ON_THE_WAY, len(found.rows) // FEWEST_ROWS))
            asked = self._asked(found.rows, (VALIDATION,)).rows(slice(None, None, every))
            parts = ceil(len(asked) / max(1, self.spec.tokens // width(found.rows)))
            batches += [part.to(self.device) for part in asked.equal_parts(parts)]
            items.append(asked.scored_of(found.items[::every]))
            if found.sizes is not None:
                sizes.append(asked.sizes_of(found.sizes[::every]))
        return HeldOut(batches, np.concatenate(items), np.concatenate(sizes) if sizes else None)

    def _asked(self, rows: Rows, key: tuple[int, ...]) -> Batch:
        """A batch of examples, which have targets, or of text with the objective's targets, the same for every arm."""
        if isinstance(rows, Examples):
            return Batch.of(rows)
        assert self.corpus.eos is not None
        return self.spec.objective.batch(rows, self.vocabulary, np.random.default_rng(key), self.corpus.eos)


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
