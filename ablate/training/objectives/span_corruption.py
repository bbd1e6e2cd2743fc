"""Span corruption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ablate.training.batch import Batch
from ablate.training.objectives import Windows
from ablate.training.objectives._holes import (
    Filling,
    FillsHoles,
    HolesError,
    Spans,
    Tokens,
    check_room,
    joined,
    merged,
    per_token,
)
from zoo.costs import Cost, cost
from zoo.decode.generate import next_logits
from zoo.errors import SpecError
from zoo.model import Decoder
from zoo.site import Given
from zoo.spec import ModelSpec, longest_text


class SpanCorruption(Spans, FillsHoles):
    """Spans of a text, a share `rate` of its tokens, `span` tokens long on average, are each replaced by a sentinel of
    its own for the encoder; the decoder writes the spans, each after its sentinel, and a final sentinel. Raffel et al.
    2019 (T5), arXiv:1910.10683 §3.1.4 and §3.3.4.

    Of the objective's own ids, the first starts the decoder's text, and the others are sentinels.
    """

    kind: Literal["span_corruption"] = "span_corruption"
    counts: ClassVar[str] = "the tokens of the dropped spans and their sentinels, which have no bytes"

    def check(self, model: ModelSpec) -> None:
        if model.encoder is None:
            raise SpecError("encoder", "the objective span_corruption needs a model with an encoder: set encoder")

    def lengths(self, context: int) -> tuple[int, int]:
        """(tokens that the encoder reads, tokens that the decoder writes) of a window of `context` tokens."""
        dropped, spans = self.sizes(context)
        return context - dropped + spans, dropped + spans + 1

    def extra_tokens(self, context: int) -> int:
        return self.sizes(context)[1] + 2

    def cost(self, model: ModelSpec, context: int) -> Cost:
        read, written = self.lengths(context)
        return per_token(cost(model, written, read), written, context)

    def batch(self, windows: Windows, vocabulary: int, rng: np.random.Generator, eos: int) -> Batch:
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

    def fill(self, model: Decoder, pieces: Sequence[Tokens], how: Filling) -> list[Tokens]:
        """The encoder reads a sentinel in place of each hole. The decoder is given each sentinel in turn, and writes
        until it predicts another one, or has written `how.new` tokens."""
        extra, holes = self.extra_tokens(how.context), len(pieces) - 1
        start, encoder = model.spec.vocab_size - extra, model.spec.encoder_spec
        if encoder is None:
            raise TypeError("the model has no encoder")
        if holes > extra - 2:
            raise HolesError(
                f"{holes} holes, but windows of {how.context} tokens trained sentinels for only {extra - 2}"
            )
        source = joined(pieces, [[start + 1 + hole] for hole in range(holes)])
        room = 1 + holes * (how.new + 1)
        check_room("the text with its sentinels", len(source), longest_text(encoder))
        check_room("the output", room, longest_text(model.spec))
        cache = model.new_cache(1, room, encoder_capacity=len(source))
        given = Given(encoder_tokens=torch.tensor([source], device=model.device))
        unread, filled = [start], [Tokens() for _ in range(holes)]
        for hole, span in enumerate(filled):
            unread.append(start + 1 + hole)
            while unread and len(span) < how.new:
                logits = next_logits(model, torch.tensor([unread], device=model.device), cache, **given)
                token, given = how.choose(logits, joined(pieces, filled), range(start + 1, start + extra)), Given()
                unread = [token] if token < start else []
                span.extend(unread)
        return filled


def _filled(text: Windows, places: NDArray[np.int64], sentinel: int) -> NDArray[np.int64]:
    """text: (B, T), places: (B, N) → (B, N): the tokens at these positions, and for −1 the next sentinel of the row."""
    numbers = np.cumsum(places < 0, axis=1) - 1
    return np.where(places < 0, sentinel + numbers, np.take_along_axis(text, np.maximum(places, 0), axis=1))
