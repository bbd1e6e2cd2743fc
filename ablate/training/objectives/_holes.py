"""Shared code of objectives whose models fill holes in a text, or that drop spans of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from ablate.training.objectives import Objective
from zoo.costs import Cost
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


class Spans(Objective):
    """Drops a share `rate` of a window's tokens, in spans of `span` tokens on average.

    All windows have the same number of spans, so that nothing is padded; all ways to cut them are equally likely.
    """

    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of a window's tokens that are dropped."""
    span: Annotated[float, Field(ge=1)] = 3.0
    """Mean length of a dropped span, in tokens."""

    def sizes(self, context: int) -> tuple[int, int]:
        """(dropped tokens, spans) of a window of `context` tokens."""
        dropped = min(max(1, round(self.rate * context)), context - 1)
        return dropped, min(max(1, round(dropped / self.span)), dropped, context - dropped)

    def dropped(self, length: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(T,): mask of the dropped tokens, in alternating kept and dropped stretches, a kept one first."""
        count, spans = self.sizes(length)
        lengths = np.stack((_parts(length - count, spans, rng), _parts(count, spans, rng)), axis=1).ravel()
        return np.repeat(np.tile([False, True], spans), lengths)


def _parts(total: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(count,): positive sizes of parts that add up to `total`, all ways equally likely."""
    cuts = np.sort(rng.choice(np.arange(1, total), count - 1, replace=False))
    return np.diff(np.concatenate(([0], cuts, [total])))


def merged(places: NDArray[np.int64], gaps: NDArray[np.bool_], end: bool = False) -> NDArray[np.int64]:
    """Positions of tokens, with one −1 for each stretch of `gaps`. end: append one more −1."""
    first = gaps & ~np.concatenate(([False], gaps[:-1]))
    kept = places[~gaps | first]
    return np.append(kept, -1) if end else kept


def per_token(found: Cost, tokens: int, context: int) -> Cost:
    """Costs per token of a pass over `tokens` tokens, converted to costs per token of the `context` tokens of text."""
    share = tokens / context
    return replace(
        found,
        context=context,
        flops_per_token_forward=share * found.flops_per_token_forward,
        flops_per_token=share * found.flops_per_token,
        flops_per_token_square=share * found.flops_per_token_square,
        flops_per_token_executed=share * found.flops_per_token_executed,
    )
