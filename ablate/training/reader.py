"""What a run reads: batches to learn from, and all that is held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ablate.data.examples import Examples, Rows, width
from ablate.training.batch import Batch
from ablate.training.spec import TrainSpec


class Corpus(Protocol):
    """What training reads. See `ablate.data`."""

    def widths(self, context: int) -> tuple[int, ...]: ...

    def batch(self, step: int, *, batch: int, context: int, seed: int) -> Rows: ...

    def validation_rows(self, context: int) -> Sequence[tuple[Rows, NDArray[np.uint32] | None]]: ...


ON_THE_WAY = 8
"""Of so many held-out rows one is read when training is validated on the way; all are when it has ended."""
FEWEST_ROWS = 32
"""No fewer are read on the way, where there are as many."""
VALIDATION = 2**64
"""In place of a seed, beyond all of them, where an objective draws what to ask about held-out text."""


@dataclass(frozen=True)
class HeldOut:
    """The same questions each time, for every seed and arm. tokens: those that are scored. n_bytes: what these stand
    for; None where they are not text."""

    batches: list[Batch]
    tokens: int
    n_bytes: int | None


@dataclass(frozen=True)
class TrainingReader:
    """A corpus as one run reads it. vocabulary: the model's, for objectives that have ids of their own."""

    corpus: Corpus
    spec: TrainSpec
    vocabulary: int
    seed: int
    device: str

    def batch(self, step: int) -> Batch:
        """What 1-based `step` learns from, on the host."""
        spec = self.spec
        rows = self.corpus.batch(step - 1, batch=spec.batch, context=spec.context, seed=self.seed)
        batch = self._asked(rows, (self.seed, step))
        return batch.pinned() if self.device == "cuda" else batch

    def held_out(self, whole: bool = True) -> HeldOut:
        """What is held out, on the device, in batches no larger than those of training: all of it, or rows spread
        evenly over it.

        Batches of one width have one shape, the last one padded with rows that are not scored: a compiled loss has no
        more than one program for each width.
        """
        batches: list[Batch] = []
        tokens, n_bytes, text = 0, 0, True
        for rows, sizes in self.corpus.validation_rows(self.spec.context):
            every = 1 if whole else max(1, min(ON_THE_WAY, len(rows) // FEWEST_ROWS))
            asked = self._asked(rows, (VALIDATION,)).rows(slice(None, None, every))
            parts = ceil(len(asked) / max(1, self.spec.tokens // width(rows)))
            batches += [part.to(self.device) for part in asked.equal_parts(parts)]
            tokens += asked.scored
            text = text and sizes is not None
            n_bytes += 0 if sizes is None else asked.bytes_of(sizes[::every])
        return HeldOut(batches, tokens, n_bytes if text else None)

    def _asked(self, rows: Rows, key: tuple[int, ...]) -> Batch:
        """Examples, which say what they ask, or what the objective makes of windows of text, the same for every arm."""
        if isinstance(rows, Examples):
            return Batch.of(rows)
        return self.spec.objective.batch(rows, self.vocabulary, np.random.default_rng(key))
