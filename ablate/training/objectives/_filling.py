"""Shared code of objectives whose models fill holes in a text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from zoo.decode import Sampling
from zoo.model import Decoder

Tokens = list[int]


class HolesError(ValueError):
    """The model has no room for this many holes, or for their contents."""


@dataclass
class Filling:
    """Settings of filling holes. new: most tokens per hole. context: that of training. vocabulary: bound of the text's
    ids."""

    new: int
    context: int
    vocabulary: int
    sampling: Sampling
    generator: torch.Generator

    def choose(self, logits: Tensor, text: Sequence[int], ends: Collection[int] = ()) -> int:
        """Sample a token of text, or one of `ends`, from logits: (1, V) after the text so far."""
        legal = torch.zeros(logits.shape[-1], dtype=torch.bool)
        legal[: self.vocabulary] = True
        legal[list(ends)] = True
        kept = logits.cpu().double().masked_fill(~legal, float("-inf"))
        return int(self.sampling.choose(kept, torch.tensor([list(text)]), generator=self.generator))


class FillsHoles(ABC):
    """An objective whose models fill in holes."""

    new: ClassVar[int] = 64
    """Default of most tokens per hole."""

    @abstractmethod
    def fill(self, model: Decoder, pieces: Sequence[Tokens], how: Filling) -> list[Tokens]:
        """The tokens of each hole. pieces: the text before, between and after the holes, one more than there are holes.

        Raises HolesError.
        """


def joined(pieces: Sequence[Tokens], holes: Iterable[Tokens]) -> Tokens:
    """The pieces, with the contents of the holes between them."""
    first, *rest = pieces
    return [*first, *(token for hole, piece in zip(holes, rest, strict=True) for token in (*hole, *piece))]


def check_room(what: str, tokens: int, room: int | None) -> None:
    """Raise HolesError if `tokens` exceeds the model's number of positions, `room`; None is unlimited."""
    if room is not None and tokens > room:
        raise HolesError(f"{what} takes {tokens} tokens: the model has positions for {room}")
