"""Span corruption."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ablate.training.batch import Batch
from ablate.training.objectives import Windows
from ablate.training.objectives._spans import Spans, merged, per_token
from zoo.costs import Cost, cost
from zoo.errors import SpecError
from zoo.spec import ModelSpec


class SpanCorruption(Spans):
    """Spans of a text, `rate` of its tokens in all and `span` on average, are each replaced by a sentinel of its own
    for the encoder; the decoder writes the spans, each after its sentinel, and one more sentinel to end. Raffel et al.
    2019 (T5), arXiv:1910.10683 §3.1.4 and §3.3.4.

    The first of its ids starts the decoder's text, the others are sentinels.
    """

    kind: Literal["span_corruption"] = "span_corruption"
    counts: ClassVar[str] = "the tokens of the dropped spans and their sentinels, which stand for no byte"

    def check(self, model: ModelSpec) -> None:
        if model.encoder is None:
            raise SpecError("encoder", "the objective span_corruption is for models with an encoder: set encoder")

    def lengths(self, context: int) -> tuple[int, int]:
        """(what the encoder reads, what the decoder writes) of a window of so many tokens."""
        dropped, spans = self.sizes(context)
        return context - dropped + spans, dropped + spans + 1

    def extra_tokens(self, context: int) -> int:
        return self.sizes(context)[1] + 2

    def cost(self, model: ModelSpec, context: int) -> Cost:
        read, written = self.lengths(context)
        return per_token(cost(model, written, read), written, context)

    def batch(self, windows: Windows, vocabulary: int, rng: np.random.Generator) -> Batch:
        length = windows.shape[1] - 1
        start = vocabulary - self.extra_tokens(length)
        read, places = [], []
        for _ in windows:
            dropped = self.dropped(length, rng)
            read.append(merged(np.where(dropped, -1, np.arange(length)), dropped))
            places.append(merged(np.where(dropped, np.arange(length), -1), ~dropped, end=True))
        written = np.stack(places)
        targets = _filled(windows[:, 1:], written, start + 1)
        tokens = np.concatenate((np.full((len(windows), 1), start), targets[:, :-1]), axis=1)
        source = _filled(windows[:, 1:], np.stack(read), start + 1)
        return Batch(
            torch.from_numpy(tokens),
            torch.from_numpy(targets),
            {"encoder_tokens": torch.from_numpy(source)},
            places=torch.from_numpy(np.where(written < 0, -1, written + 1)),
        )


def _filled(text: Windows, places: NDArray[np.int64], sentinel: int) -> NDArray[np.int64]:
    """text: (B, T), places: (B, N) → the tokens at the places, and for −1 the next sentinel of the row."""
    numbers = np.cumsum(places < 0, axis=1) - 1
    return np.where(places < 0, sentinel + numbers, np.take_along_axis(text, np.maximum(places, 0), axis=1))
