"""Which keys a query sees where it does not see all of those before it: one file per pattern.

A pattern is said once, by `sees`, and computed without the square of queries and keys, by `attend`. What `attend`
cannot do (padded rows, a chunk of a prompt behind a cache, biases, caps and sinks) goes through a mask of `sees`.
"""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from zoo.attending.scoring import Scoring
from zoo.settings.axis import Variant


class Sparsity(Variant):
    """A pattern over places of one text."""

    @property
    def reach(self) -> int | None:
        """Number of last tokens that include all that a query sees, itself included; None where it may see any."""
        return None

    @abstractmethod
    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Boolean mask, whether a query sees a key at or before it; positions of queries and keys that broadcast."""

    @abstractmethod
    def pairs(self, context: int) -> int:
        """Number of pairs of a query and a key that it sees in a text of `context` tokens."""

    @abstractmethod
    def computed(self, context: int) -> int:
        """Scores per head that `attend` computes for a text of `context` tokens, seen or not."""

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """A whole unpadded text with plain scores. q: (B, H, T, d), k: (B, K, T, d), v: (B, K, T, e) → (B, H, T, e)."""


def counted(tokens: int, most: int | None) -> int:
    """Σ min(i, most) for i from 1 to `tokens`."""
    width = tokens if most is None else min(tokens, most)
    return width * (width + 1) // 2 + (tokens - width) * width
