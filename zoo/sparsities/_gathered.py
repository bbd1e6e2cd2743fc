"""Patterns in which each block of queries sees a bounded number of keys, computed by gathering these keys."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.attending.blocks import fold, unfold
from zoo.attending.fused import sdpa
from zoo.attending.visible import Scoring
from zoo.sparsities import Sparsity


class Gathered(Sparsity):
    """Each block of queries attends to its own gathered keys: work and memory are linear in the text's length."""

    @property
    @abstractmethod
    def queries_at_once(self) -> int:
        """b: number of queries in a block."""

    @abstractmethod
    def keys_of(self, blocks: Tensor) -> Tensor:
        """blocks: (N, 1), indices of query blocks → (N, M), positions of the keys that any query of the block sees,
        without duplicates. Negative entries stand for no key; the caller masks keys later than a query."""

    @property
    @abstractmethod
    def keys_at_once(self) -> int:
        """M: number of keys gathered for each block."""

    def computed(self, context: int) -> int:
        size = self.queries_at_once
        return -(-context // size) * size * self.keys_at_once

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        length, size = q.shape[2], self.queries_at_once
        count = -(-length // size)
        keys = self.keys_of(torch.arange(count, device=q.device)[:, None])[:, None]  # (N, 1, M) positions
        queries = torch.arange(count * size, device=q.device).view(count, size, 1)  # (N, b, 1) positions
        seen = (keys >= 0) & (keys <= queries) & self.sees(queries, keys)
        places = keys[:, 0].clamp(0, length - 1)
        q = F.pad(q, (0, 0, 0, count * size - length)).unflatten(2, (count, size))
        mask = seen.repeat(q.shape[0], 1, 1)[:, None]
        mixed = sdpa(fold(q), fold(k[:, :, places]), fold(v[:, :, places]), mask, False, scoring)
        return unfold(mixed, count)[:, :, :length]
