"""Caches of layers that attend both to tokens and to blocks of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from zoo.caching.cache import TakeBack, TokenCache


class BlockCache:
    """Keys and values of all tokens, of the last few, of those that blocks still to come read, and of blocks.

    How many blocks there are follows from the number of tokens. So taking tokens back leaves blocks as they are: those
    that were made of them are not read until they are made again.
    """

    def __init__(self, tokens: TokenCache, near: TokenCache, unread: TokenCache, blocks: Sequence[Tensor]) -> None:
        """blocks: keys and values, (B, K, slots, d) each."""
        self.tokens, self.near, self.unread = tokens, near, unread
        self.blocks = list(blocks)

    @property
    def _parts(self) -> tuple[TokenCache, TokenCache, TokenCache]:
        return self.tokens, self.near, self.unread

    @property
    def capacity(self) -> int | None:
        return self.tokens.capacity

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts) + sum(block.nbytes for block in self.blocks)

    def pad(self, left_pad: Tensor) -> None:
        """Padding is kept as if it were text, and masked."""

    def readable(self, tokens: int) -> int:
        return tokens

    def add(self, new: Sequence[Tensor], first: int | Tensor, count: int) -> list[Tensor]:
        """Take new blocks and return all.

        new: keys and values of M blocks, (B, K, M, d) each. first: the number of blocks before them, (B, 1) where rows
        differ. count: how many are returned, of which a row may not have the last.
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
        """old: (B, K, N, d), new: (B, K, M, d), from slot `first` on."""
        if not isinstance(first, Tensor):
            return torch.cat((old[:, :, :first], new), dim=2)
        if not new.shape[2]:
            return old
        which = torch.arange(old.shape[2], device=old.device) - first
        fresh = ((which >= 0) & (which < new.shape[2]))[:, None, :, None]
        laid = new.take_along_dim(which.clamp(0, new.shape[2] - 1)[:, None, :, None], dim=2)
        return torch.where(fresh, laid, old)

    def reorder(self, rows: Tensor) -> None:
        for part in self._parts:
            part.reorder(rows)
        self.blocks = [block[rows] for block in self.blocks]

    def divides(self, tokens: int) -> bool:
        return all(part.divides(tokens) for part in self._parts)

    def mark(self, tokens: int) -> TakeBack:
        undo = [part.mark(tokens) for part in self._parts]

        def take_back(kept: int) -> None:
            for undo_part in undo:
                undo_part(kept)

        return take_back
