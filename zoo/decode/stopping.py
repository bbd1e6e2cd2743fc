"""Stop sequences, which end a continuation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.kernels.sending import on_device


@dataclass(frozen=True)
class Stop:
    """A row ends with the first of these token sequences, which stays in the row; later tokens become `fill`. Raises
    ValueError for an empty sequence."""

    sequences: Sequence[Sequence[int]]
    fill: int = 0

    def __post_init__(self) -> None:
        if not all(self.sequences):
            raise ValueError("a stop sequence is empty: every row would end at once")

    def lengths(self, new: Tensor) -> Tensor:
        """new: (B, N) generated tokens → (B,): each row's length up to its end, N + 1 if no sequence has ended it."""
        ends = torch.full((new.shape[0],), new.shape[1] + 1, device=new.device)
        for sequence in self.sequences:
            size = len(sequence)
            if size > new.shape[1]:
                continue
            found = (new.unfold(1, size, 1) == on_device(sequence, new.device)).all(dim=-1)
            first = torch.where(found.any(dim=1), found.int().argmax(dim=1) + size, ends)
            ends = torch.minimum(ends, first)
        return ends

    def ended(self, new: Tensor) -> Tensor:
        """(B,): whether the row has ended."""
        return self.lengths(new) <= new.shape[1]

    def cut(self, new: Tensor) -> Tensor:
        """(B, N) → (B, n): cut at the longest row's end, with `fill` after the ends of other rows."""
        lengths = self.lengths(new).clamp(max=new.shape[1])
        new = new[:, : int(lengths.max())]
        after = torch.arange(new.shape[1], device=new.device) >= lengths[:, None]
        return new.masked_fill(after, self.fill)


NEVER = Stop(())
"""No stop sequences: every row continues to the limit."""
