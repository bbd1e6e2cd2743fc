"""Caches of blocks in which more than the mixer has state: one cache for each part."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from zoo.caching.cache import LayerCache, TakeBack


class PartsCache:
    """Caches of a block's parts, by the part's name."""

    def __init__(self, parts: Mapping[str, LayerCache]) -> None:
        self.parts = dict(parts)

    @property
    def capacity(self) -> int | None:
        return min((part.capacity for part in self.parts.values() if part.capacity is not None), default=None)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def pad(self, left_pad: Tensor) -> None:
        for part in self.parts.values():
            part.pad(left_pad)

    def readable(self, tokens: int) -> int:
        return min(part.readable(tokens) for part in self.parts.values())

    def reorder(self, rows: Tensor) -> None:
        for part in self.parts.values():
            part.reorder(rows)

    def divides(self, tokens: int) -> bool:
        return all(part.divides(tokens) for part in self.parts.values())

    def mark(self, tokens: int) -> TakeBack:
        undo = [part.mark(tokens) for part in self.parts.values()]

        def take_back(kept: int) -> None:
            for undo_part in undo:
                undo_part(kept)

        return take_back


class MemoryCache:
    """Keys and values of the encoder's tokens, which all tokens of the decoder see: written once.

    They are of no token of the decoder's, so that taking these back leaves them as they are.
    """

    capacity: int | None = None

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        """keys, values: (B, K, slots, d)."""
        self.buffers = [keys, values]
        self.length = 0

    @staticmethod
    def empty(shape: tuple[int, int, int, int], like: Tensor, dtype: torch.dtype) -> MemoryCache:
        """On the device of `like`."""
        return MemoryCache(*(torch.zeros(shape, dtype=dtype, device=like.device) for _ in range(2)))

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers)

    def read(self) -> tuple[Tensor, Tensor]:
        """(B, K, S, d) each."""
        keys, values = (buffer[:, :, : self.length] for buffer in self.buffers)
        return keys, values

    def write(self, *new: Tensor) -> None:
        """Keys and values: (B, K, S, d)."""
        self.length, slots = new[0].shape[2], self.buffers[0].shape[2]
        if self.length > slots:
            raise ValueError(f"the cache holds {slots} tokens of the encoder's: {self.length} do not fit")
        for buffer, value in zip(self.buffers, new, strict=True):
            buffer[:, :, : self.length] = value.detach()

    def pad(self, left_pad: Tensor) -> None:
        """The encoder's text has padding of its own."""

    def readable(self, tokens: int) -> int:
        return tokens

    def reorder(self, rows: Tensor) -> None:
        self.buffers = [buffer[rows] for buffer in self.buffers]

    def divides(self, tokens: int) -> bool:
        return True

    def mark(self, tokens: int) -> TakeBack:
        def take_back(kept: int) -> None:
            """Nothing was written."""

        return take_back
