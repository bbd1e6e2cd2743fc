"""Composite caches: of a block's parts, of tokens with blocks of tokens, and of layers that run on chunks of tokens or
on chosen tokens. Also the cache of the encoder's tokens.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from zoo.caching.cache import LayerCache, Rollback, TokenCache
from zoo.caching.states import StateCache


class Composite(ABC):
    """A cache made of others, all of which see the same tokens."""

    @property
    @abstractmethod
    def made_of(self) -> Sequence[LayerCache]:
        """The component caches."""

    @property
    def capacity(self) -> int | None:
        return min((part.capacity for part in self.made_of if part.capacity is not None), default=None)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.made_of)

    def pad(self, left_pad: Tensor) -> None:
        for part in self.made_of:
            part.pad(left_pad)

    def readable(self, tokens: int) -> int:
        return min(part.readable(tokens) for part in self.made_of)

    def reorder(self, rows: Tensor) -> None:
        for part in self.made_of:
            part.reorder(rows)

    def divides(self, tokens: int) -> bool:
        return all(part.divides(tokens) for part in self.made_of)

    def mark(self, tokens: int) -> Rollback:
        undo = [part.mark(tokens) for part in self.made_of]

        def take_back(kept: int) -> None:
            for undo_part in undo:
                undo_part(kept)

        return take_back


class PartsCache(Composite):
    """Caches of a layer's parts, by name: `cache.parts["attention"]` is what the part with that name is given."""

    def __init__(self, parts: Mapping[str, LayerCache]) -> None:
        self.parts = dict(parts)

    @property
    def made_of(self) -> Sequence[LayerCache]:
        return list(self.parts.values())

    def begin_pass(self) -> None:
        for part in self.parts.values():
            begin_pass(part)


def begin_pass(cache: LayerCache | None) -> None:
    """Tell the states in a cache that a layer is about to read the next tokens."""
    if isinstance(cache, StateCache | PartsCache):
        cache.begin_pass()


class EncoderCache:
    """Keys and values of the encoder's tokens, which all tokens of the decoder see. They are written once.

    Rollbacks of the decoder's tokens leave them unchanged.
    """

    capacity: int | None = None

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        """keys, values: (B, K, slots, d)."""
        self.buffers = [keys, values]
        self.length = 0

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)

    def read(self) -> tuple[Tensor, Tensor]:
        """Keys and values: (B, K, S, d) each."""
        keys, values = (buffer[:, :, : self.length] for buffer in self.buffers)
        return keys, values

    def write(self, *new: Tensor) -> None:
        """new: keys and values, (B, K, S, d) each. Raises ValueError if they do not fit."""
        self.length, slots = new[0].shape[2], self.buffers[0].shape[2]
        if self.length > slots:
            raise ValueError(f"the cache is for at most {slots} encoder tokens, not {self.length}")
        for buffer, value in zip(self.buffers, new, strict=True):
            buffer[:, :, : self.length] = value.detach()

    def pad(self, left_pad: Tensor) -> None:
        """Does nothing: the encoder's text has its own padding."""

    def readable(self, tokens: int) -> int:
        return tokens

    def reorder(self, rows: Tensor) -> None:
        self.buffers = [buffer[rows] for buffer in self.buffers]

    def divides(self, tokens: int) -> bool:
        return True

    def mark(self, tokens: int) -> Rollback:
        def take_back(kept: int) -> None:
            """Does nothing: decoded tokens write nothing here."""

        return take_back


class BlockCache(Composite):
    """Keys and values of all tokens, of the last few (`near`), of those that future blocks need (`unread`), and of
    blocks of tokens.

    The number of blocks follows from the number of tokens. So a rollback leaves the blocks unchanged: those made of
    discarded tokens are not read until they are written again.
    """

    def __init__(self, tokens: TokenCache, near: TokenCache, unread: TokenCache, blocks: Sequence[Tensor]) -> None:
        """blocks: keys and values, (B, K, slots, d) each."""
        self.tokens, self.near, self.unread = tokens, near, unread
        self.blocks = list(blocks)

    @property
    def made_of(self) -> Sequence[TokenCache]:
        return self.tokens, self.near, self.unread

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(block.nbytes for block in self.blocks)

    def add(self, new: Sequence[Tensor], first: int | Tensor, count: int) -> list[Tensor]:
        """Store new blocks and return all.

        new: keys and values of M blocks, (B, K, M, d) each. first: the number of blocks before them, (B, 1) if rows
        differ. count: number of blocks returned; some rows may not have the last ones yet.
        """
        if not isinstance(first, Tensor) and first == 0:
            known = list(new)
        else:
            known = [
                self._with(old[:, :, :count].to(x.dtype), x, first) for old, x in zip(self.blocks, new, strict=True)
            ]
        for old, x in zip(self.blocks, known, strict=True):
            old[:, :, :count] = x.detach()
        return known

    def _with(self, old: Tensor, new: Tensor, first: int | Tensor) -> Tensor:
        """old: (B, K, N, d), with new: (B, K, M, d) in place of its slots from `first` on."""
        if not isinstance(first, Tensor):
            return torch.cat((old[:, :, :first], new), dim=2)
        if not new.shape[2]:
            return old
        which = torch.arange(old.shape[2], device=old.device) - first
        fresh = ((which >= 0) & (which < new.shape[2]))[:, None, :, None]
        laid = new.take_along_dim(which.clamp(0, new.shape[2] - 1)[:, None, :, None], dim=2)
        return torch.where(fresh, laid, old)

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        self.blocks = [block[rows] for block in self.blocks]


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
