"""Data of a run: training batches, and the held-out parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ablate.data.corpus import Examples, HeldOutRows, Rows, width
from ablate.training.batch import Batch
from ablate.training.spec import TrainSpec
from store.documents import HeldOutPart


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
