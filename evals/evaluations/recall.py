"""Associative recall on real text: the loss of tokens that complete a bigram that occurred earlier in the window.

A target is *seen* if the pair (token before it, target) occurred earlier in the window; its distance is the number of
tokens from the second token of the latest such pair to the target. A model that looks back knows what followed last
time. Seen pairs that are frequent in the training text can be known from the weights alone; the others are associative
recall hits, which cause most of the gap between attention and mixers with a fixed-size state (Arora et al. 2023
(Zoology), arXiv:2312.04927). The hits depend only on the text and its tokens, so that they are the same for all models
with one tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveInt

from evals.evaluations import EvaluationSpec
from evals.found import Found
from evals.reading.passes import Rows, check_causal
from evals.reading.windows import (
    Floats,
    Ints,
    Multiples,
    Reader,
    Reason,
    Text,
    bits_per_byte,
    buckets,
    finite,
    loss_score,
    ratio,
    rows_of,
    stretches,
    unless_out_of_memory,
)
from evals.subject import HeldOutText, Need, Subject, causal_models, shared_tokenizer
from store.documents import JsonObject, JsonScalar, Score
from zoo.model import Decoder

TASK = "recall"
"""Name of its scores, which are listed among those of tasks."""
COUNTED = 2**25
"""Maximum number of training tokens that are counted; of a longer text, evenly spaced pieces stand for all."""
PIECE = 2**20

Mask = NDArray[np.bool_]


class RecallSpec(EvaluationSpec):
    """Loss of tokens that complete a bigram already seen in the window, by distance."""

    needs: ClassVar[tuple[Need, ...]] = (causal_models, shared_tokenizer)

    multiples: Multiples = (1,)
    """Lengths of the windows, as multiples of the training context."""
    tokens: PositiveInt = 65_536
    """Approximate number of held-out tokens that are read at each length; at least one window."""
    frequent: NonNegativeInt | None = 1250
    """Bigrams that occur more often than this in the training text are not hits, since the weights alone may know them;
    null counts all. The default is Zoology's, for ten billion tokens."""

    def scored(self) -> tuple[str, ...]:
        return (TASK,)

    def run(self, subject: Subject, data: HeldOutText) -> Found:
        return loss_by_recall(
            subject.model,
            data.text,
            data.train(),
            self,
            context=subject.context,
            batch=subject.batch,
            seed=subject.seed,
        )


def loss_by_recall(
    model: Decoder, text: Text, train: NDArray[Any], spec: RecallSpec, *, context: int, batch: Rows, seed: int
) -> Found:
    """Read `text` in windows of multiples of `context`, the training context. train: the tokens of the training text,
    in which pairs are counted.

    The same arguments give the same numbers. A length that does not fit the model or the text has a reason.
    """
    check_causal(model.spec)
    reader = Reader.of(model, text, context, batch)
    within = stretches(len(text.tokens), [m * context for m in spec.multiples], spec.tokens, seed)
    found = {m: _read(reader, m, within.windows(m * context), train, spec) for m in spec.multiples}
    readings = [value for value in found.values() if isinstance(value, RecallWindows)]
    items = [
        reader.item(TASK, within, row, {metric: item for each in readings for metric, item in each.items(row)})
        for row in range(len(within.starts))
        if readings
    ]
    return Found(
        scores={TASK: {metric: score for each in readings for metric, score in each.scores()}},
        items=items,
        about=reader.about(within) | {"frequent": spec.frequent},
        rows=[
            row
            for m, value in found.items()
            for row in rows_of(
                {"multiple": m, "length": m * context}, value if isinstance(value, str) else value.parts()
            )
        ],
    )


@dataclass(frozen=True)
class RecallWindows:
    """Windows of one length, by target: all (stretches, windows of each, length). distances: 0 for unseen pairs."""

    multiple: int
    context: int
    nats: Floats
    sizes: Ints
    distances: Ints
    frequent: Mask

    @property
    def hits(self) -> Mask:
        return (self.distances > 0) & ~self.frequent

    @property
    def unseen(self) -> Mask:
        chosen: Mask = self.distances == 0
        return chosen

    def parts(self) -> Iterator[JsonObject]:
        """Rows for hits, for seen but frequent targets, for unseen ones, and for hits by distance, if there are any."""
        yield self._part(self.hits, part="ar_hits")
        yield self._part((self.distances > 0) & self.frequent, part="frequent")
        yield self._part(self.unseen, part="unseen")
        for first, last in buckets(self.nats.shape[-1], self.context):
            chosen: Mask = self.hits & (self.distances >= first) & (self.distances <= last)
            if chosen.any():
                yield self._part(chosen, part="distance", first=first, last=last)

    def _part(self, chosen: Mask, **which: JsonScalar) -> JsonObject:
        """Loss of the chosen targets, with its standard error over stretches."""
        counts, nats = self._sums(chosen)
        value, stderr = ratio(nats, counts)
        sizes = np.where(chosen, self.sizes, 0)
        bits, bits_stderr = bits_per_byte(nats, sizes.sum(axis=(1, 2)))
        return {
            **which,
            "tokens": int(counts.sum()),
            "bytes": int(sizes.sum()),
            "nats_per_token": value,
            "stderr": stderr,
            "bits_per_byte": bits,
            "bits_per_byte_stderr": bits_stderr,
        }

    def _sums(self, chosen: Mask) -> tuple[Ints, Floats]:
        """Number of chosen targets, and the sum of their nats: (stretches,) each."""
        return chosen.sum(axis=(1, 2)), np.where(chosen, self.nats, 0.0).sum(axis=(1, 2))

    def _metrics(self) -> Iterator[tuple[str, Mask]]:
        """Metrics with their targets, without those that have no targets in the text."""
        for name, chosen in (("ar_hits", self.hits), ("unseen", self.unseen)):
            if chosen.any():
                yield f"loss_{name}_{self.multiple}x", chosen

    def scores(self) -> Iterator[tuple[str, Score]]:
        """Task scores: the mean loss of each metric's targets."""
        for metric, chosen in self._metrics():
            counts, nats = self._sums(chosen)
            yield metric, loss_score(*ratio(nats, counts), len(self.nats))

    def items(self, row: int) -> Iterator[tuple[str, JsonObject]]:
        """Values of a stretch for each score: sums over its targets, and their number."""
        for metric, chosen in self._metrics():
            counts, nats = self._sums(chosen)
            if counts[row]:
                yield metric, {"sum": finite(nats[row]), "weight": int(counts[row])}


def _read(reader: Reader, multiple: int, starts: Ints, train: NDArray[Any], spec: RecallSpec) -> RecallWindows | Reason:
    """Losses of the windows that begin at `starts`, or the reason why there are none."""
    length = multiple * reader.context
    if reason := reader.reason(length):
        return reason
    nats = unless_out_of_memory(lambda: reader.nats(starts, length, length))
    if isinstance(nats, str):
        return nats
    pairs = _pairs(reader.text.windows(starts, length)[..., -length - 1 :], reader.model.spec.vocab_size)
    frequent = np.zeros(pairs.shape, dtype=bool)
    if spec.frequent is not None:
        frequent = occurrences(pairs, train, reader.model.spec.vocab_size) > spec.frequent
    return RecallWindows(multiple, reader.context, nats, reader.sizes(starts, length), distances(pairs), frequent)


def _pairs(tokens: NDArray[Any], vocab_size: int) -> Ints:
    """One number for each pair of neighbouring tokens: (…, T + 1) → (…, T)."""
    tokens = tokens.astype(np.int64)
    found: Ints = tokens[..., :-1] * vocab_size + tokens[..., 1:]
    return found


def distances(pairs: Ints) -> Ints:
    """Distance of each pair to its previous occurrence, 0 if there is none: (…, T) → (…, T)."""
    order = np.argsort(pairs, axis=-1, kind="stable")
    ordered = np.take_along_axis(pairs, order, axis=-1)
    same = ordered[..., 1:] == ordered[..., :-1]
    found = np.zeros_like(pairs)
    np.put_along_axis(found, order[..., 1:], np.where(same, np.diff(order, axis=-1), 0), axis=-1)
    return found


def occurrences(pairs: Ints, train: NDArray[Any], vocab_size: int) -> Floats:
    """Count of each pair in the training text; an estimate if the text has more than `COUNTED` tokens."""
    known, place = np.unique(pairs, return_inverse=True)
    counts, read = np.zeros(len(known)), 0
    starts = np.arange(0, max(0, len(train) - 1), PIECE)
    most = COUNTED // PIECE
    for start in starts if len(starts) <= most else starts[np.arange(most) * len(starts) // most]:
        piece = _pairs(train[start : start + PIECE + 1], vocab_size)
        at = np.searchsorted(known, piece).clip(max=len(known) - 1)
        counts += np.bincount(at[known[at] == piece], minlength=len(known))
        read += len(piece)
    scale = (len(train) - 1) / read if read else 1.0
    return (counts * scale)[place].reshape(pairs.shape)
