"""Sparse attention patterns: the subset of earlier keys that a query sees. One file per pattern.

`sees` defines a pattern; `attend` computes it without the full T × T scores. Cases that `attend` does not cover (padded
rows, a chunk of a prompt after a cache, biases, soft caps and sinks) use dense attention with a mask from `sees`.
"""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from zoo.attending.visible import Scoring
from zoo.settings.axis import Variant


class Sparsity(Variant):
    """A pattern over the positions of one text."""

    @property
    def reach(self) -> int | None:
        """Number of most recent tokens, the query's own included, that contain all keys it sees; None for no limit."""
        return None

    @abstractmethod
    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Boolean mask: whether a query sees a key at or before it. queries, keys: positions, broadcast together."""

    @abstractmethod
    def pairs(self, context: int) -> int:
        """Number of (query, visible key) pairs in a text of `context` tokens."""

    @abstractmethod
    def computed(self, context: int) -> int:
        """Number of scores per head that `attend` computes for a text of `context` tokens, masked ones included."""

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Attention over whole unpadded texts with plain scores. q: (B, H, T, d), k: (B, K, T, d), v: (B, K, T, e) →
        (B, H, T, e)."""


def counted(tokens: int, most: int | None) -> int:
    """Σ min(i, most) for i from 1 to `tokens`."""
    width = tokens if most is None else min(tokens, most)
    return width * (width + 1) // 2 + (tokens - width) * width
