"""Autoregressive blank infilling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ablate.training.batch import Batch
from ablate.training.objectives import Windows, without_encoder
from ablate.training.objectives._holes import Filling, FillsHoles, Spans, Tokens, check_room, joined, merged, per_token
from zoo.costs import Cost, cost
from zoo.decode.generate import next_logits
from zoo.errors import SpecError
from zoo.loss import IGNORED
from zoo.model import Decoder
from zoo.site import Given
from zoo.spec import ModelSpec, longest_text

MASK, START, END, NONE = -1, -2, -3, -4
"""Markers in place of a token's position in its text."""


class BlankInfilling(Spans, FillsHoles):
    """Part A is the text with a token [MASK] for each dropped span; part B has the spans in random order, each after a
    token [START], with [END] as its last target. All tokens see part A, and part B causally. Du et al. 2021 (GLM),
    arXiv:2103.10360 §2.1.

    A token of part B has the position of its [MASK] and, as a second position, its number within the span; the second
    position of part A's tokens is 0. The last ids of the vocabulary are [MASK], [START] and [END].
    """

    kind: Literal["blank_infilling"] = "blank_infilling"
    counts: ClassVar[str] = "the tokens of the dropped spans and the end token of each, which has no bytes"

    def check(self, model: ModelSpec) -> None:
        without_encoder(self.kind, model)
        if model.visible != "prefix":
            raise SpecError("visible", "the objective blank_infilling needs a prefix LM: set visible to prefix")

    def extra_tokens(self, context: int) -> int:
        return 3

    def lengths(self, context: int) -> tuple[int, int]:
        """Numbers of tokens of parts A and B."""
        dropped, spans = self.sizes(context)
        return context - dropped + spans, dropped + spans

    def cost(self, model: ModelSpec, context: int) -> Cost:
        first, second = self.lengths(context)
        whole = first + second
        share = first * (first - 1) / (whole * (whole - 1))  # ordered pairs of tokens that are both in part A
        return per_token(cost(model, whole, prefix=share), whole, context)

    def batch(self, windows: Windows, vocabulary: int, rng: np.random.Generator, eos: int) -> Batch:
        text, length, own = windows[:, 1:], windows.shape[1] - 1, vocabulary - 3
        rows = [_infilled(self.dropped(length, rng), rng) for _ in windows]
        read, asked, places, blocks = (np.stack(part) for part in zip(*rows, strict=True))
        targets = torch.from_numpy(_looked_up(text, asked, {NONE: IGNORED, END: own + 2}))
        first = torch.full((len(windows),), self.lengths(length)[0])
        given = Given(prefix=first, places=torch.from_numpy(places), block_places=torch.from_numpy(blocks))
        tokens = torch.from_numpy(_looked_up(text, read, {MASK: own, START: own + 1}))
        return Batch(tokens, targets, given, torch.from_numpy(np.where(asked < 0, -1, asked + 1)))

    def fill(self, model: Decoder, pieces: Sequence[Tokens], how: Filling) -> list[Tokens]:
        """Each hole is a [MASK]. The blanks are written from left to right, each until [END] or `how.new` tokens; all
        see the text and earlier blanks."""
        own, holes = model.spec.vocab_size - 3, len(pieces) - 1
        first = joined(pieces, [[own]] * holes)
        check_room("the text with its masks", len(first), longest_text(model.spec))
        check_room("a blank", how.new + 2, longest_text(model.spec))
        cache = model.new_cache(1, len(first) + holes * (how.new + 1))
        on = model.device
        model.hidden(torch.tensor([first], device=on), cache, prefix=torch.tensor([len(first)], device=on))
        filled = [Tokens() for _ in range(holes)]
        unread: list[tuple[int, int, int]] = []
        for place, span in zip((n for n, token in enumerate(first) if token == own), filled, strict=True):
            unread.append((own + 1, place, 1))
            while unread and len(span) < how.new:
                tokens, places, blocks = torch.tensor(unread, device=on).T[:, None]
                logits = next_logits(model, tokens, cache, places=places, block_places=blocks)
                token = how.choose(logits, [*first, *(token for each in filled for token in each)], [own + 2])
                unread = [] if token == own + 2 else [(token, place, len(span) + 2)]
                span.extend(token for token, *_ in unread)
        return filled


def _infilled(dropped: NDArray[np.bool_], rng: np.random.Generator) -> tuple[NDArray[np.int64], ...]:
    """For each token of parts A and B: its index in the text and that of its target (or markers), and two positions."""
    first = merged(np.where(dropped, MASK, np.arange(len(dropped))), dropped)
    edges = np.flatnonzero(np.diff(dropped, prepend=False, append=False)).reshape(-1, 2)  # (spans, 2): start, end
    parts = [(first, np.full(len(first), NONE), np.arange(len(first)), np.zeros(len(first), dtype=np.int64))]
    for number in rng.permutation(len(edges)):
        span = np.arange(*edges[number])
        place = np.flatnonzero(first == MASK)[number]  # position of the span's [MASK] in part A
        count = len(span) + 1
        parts.append((np.append(START, span), np.append(span, END), np.full(count, place), np.arange(1, count + 1)))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _looked_up(text: Windows, places: NDArray[np.int64], others: Mapping[int, int]) -> NDArray[np.int64]:
    """text: (B, T), places: (B, N) → (B, N): the tokens at these positions; markers become tokens by `others`."""
    found = np.take_along_axis(text, np.maximum(places, 0), axis=1)
    for place, token in others.items():
        found = np.where(places == place, token, found)
    return found
