"""Copies of features: which one of a narrow layer each feature of a wide layer repeats, and what becomes of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Copies:
    """Feature i of the wide layer is feature `of[i]` of the `count` that the narrow one has."""

    of: Tensor
    count: int

    @staticmethod
    def tiled(count: int, wide: int) -> Copies:
        """All features in their order, again and again: i mod count."""
        return Copies(torch.arange(wide, device="cpu") % count, count)

    @staticmethod
    def grouped(heads: tuple[int, int], kv_heads: tuple[int, int]) -> Copies:
        """Query heads, narrow and wide, so that each still reads the kv head it did where kv heads are tiled: within
        a group of the heads that share one, all in their order, again and again."""
        group, wide = (h // k for h, k in zip(heads, kv_heads, strict=True))
        head = torch.arange(heads[1], device="cpu")
        return Copies(head // wide % kv_heads[0] * group + head % wide % group, heads[0])

    def of_features(self, width: int) -> Copies:
        """The same copies for the individual features of heads, `width` features each."""
        inside = torch.arange(width, device="cpu")
        return Copies((self.of[:, None] * width + inside).flatten(), self.count * width)

    def then(self, other: Copies) -> Copies:
        """Both layers' features, side by side."""
        return Copies(torch.cat((self.of, other.of + self.count)), self.count + other.count)

    @property
    def factor(self) -> float:
        """Mean number of copies per feature."""
        return len(self.of) / self.count

    def shares(self, rows: int, draw: torch.Generator) -> Tensor:
        """(rows, wide) float64: for each row what each copy takes, drawn evenly from all positive numbers that sum to
        one over the copies of a feature: Dirichlet(1, …, 1), which is a normalised exponential."""
        drawn = torch.empty(rows, len(self.of), dtype=torch.float64).exponential_(generator=draw)
        totals = drawn.new_zeros(rows, self.count).index_add(1, self.of, drawn)
        return drawn / totals[:, self.of]


def copied(weight: Tensor, axes: Sequence[Copies | None]) -> Tensor:
    """The weight with each axis copied that has copies."""
    for axis, copies in enumerate(axes):
        if copies is not None:
            weight = weight.index_select(axis, copies.of.to(weight.device))
    return weight


def split(weight: Tensor, inputs: Copies, draw: torch.Generator) -> Tensor:
    """weight: (out, wide), its inputs copied already → the same, of which each copy of an input has a share."""
    shares = inputs.shares(weight.shape[0], draw).to(weight.device)
    return (weight.double() * shares).to(weight.dtype)
