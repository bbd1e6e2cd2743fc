"""Number of rows in a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

import torch

from evals.counting import count
from zoo.lengths import depends_on_length
from zoo.model import Decoder

Rows = int | Literal["auto"]
Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_TOKENS = 8192
"""More at once make no pass faster."""
MOST_LOGITS = 2**28
"""Numbers in the output of a pass in which every token is scored: 1 GiB."""


def alike(model: Decoder, items: Sequence[Item], length: Callable[[Item], int]) -> list[list[int]]:
    """Places of the items that a model may read in one pass: all of them, unless what it computes depends on the length
    of its rows. Then only items of one length, so that none depends on its neighbours."""
    if not depends_on_length(model.spec):
        return [list(range(len(items)))]
    places: dict[int, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(length(item), []).append(place)
    return list(places.values())


class Batches:
    """Rows of a number that is given, or found: `auto` is as many rows as have some thousand tokens together.

    Where these do not fit into a GPU's memory, there are half as many from then on. A number that is given is kept.
    """

    def __init__(self, rows: Rows, vocab_size: int) -> None:
        self._rows = None if rows == "auto" else rows
        self._tokens = max(1, min(MOST_TOKENS, MOST_LOGITS // vocab_size))

    def rows(self, longest: int) -> int:
        """Number of rows of up to `longest` tokens in a batch."""
        return self._rows or max(1, self._tokens // max(1, longest))

    def run(
        self, items: Sequence[Item], length: Callable[[Item], int], work: Callable[[list[Item]], list[Answer]]
    ) -> Iterator[tuple[Item, Answer]]:
        """Every item with its answer. The longest come first, so that neighbours pad little."""
        items = sorted(items, key=length, reverse=True)
        first = 0
        while first < len(items):
            longest = length(items[first])
            chunk = items[first : first + self.rows(longest)]
            try:
                answers = work(chunk)
            except torch.OutOfMemoryError:
                if self._rows is not None or len(chunk) == 1:
                    raise
                self._tokens = len(chunk) * longest // 2
                continue
            yield from zip(chunk, answers, strict=True)
            first += len(chunk)
            count(first, len(items))
