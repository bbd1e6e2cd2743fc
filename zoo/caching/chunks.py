"""Cache of layers that run on chunks of tokens, or on chosen tokens."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import Tensor

from zoo.caching.cache import LayerCache, Rollback
from zoo.caching.states import StateCache

BORDERS = ("key", "smoothed")
"""Names of the states kept of the last token and of the last chunk: (B, D) each."""


class ChunkCache(StateCache):
    """The joint entry of all layers that run on chunks, or the entry of one block that routes tokens. Each row has its
    own caches, one per layer, since rows differ in their number of chunks. Each has room for one chunk per token.

    lengths: number of chunks, or routed tokens, that each row has read.
    """

    def __init__(self, rows: Sequence[Sequence[LayerCache]], states: StateCache) -> None:
        """rows: for each row, one cache per layer, for a batch of one."""
        super().__init__(states.states)
        self.rows = [list(row) for row in rows]
        self.lengths = [0] * len(rows)

    @property
    def _all(self) -> list[LayerCache]:
        return [layer for row in self.rows for layer in row]

    @property
    def capacity(self) -> int | None:  # type: ignore[override]
        return min((layer.capacity for layer in self._all if layer.capacity is not None), default=None)

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(layer.nbytes for layer in self._all)

    def readable(self, tokens: int) -> int:
        return min(layer.readable(tokens) for layer in self._all)

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        picked = rows.tolist()
        self.rows = [copy.deepcopy(self.rows[row]) for row in picked]
        self.lengths = [self.lengths[row] for row in picked]

    def divides(self, tokens: int) -> bool:
        return False

    def mark(self, tokens: int) -> Rollback:
        borders_back, lengths = super().mark(tokens), list(self.lengths)
        take_back = [layer.mark(tokens) for layer in self._all]

        def undo(kept: int) -> None:
            borders_back(kept)
            self.lengths = list(lengths)
            for undo_layer in take_back:
                undo_layer(kept)

        return undo
