"""Training examples from a corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Windows: TypeAlias = NDArray[np.int64]
"""(B, T + 1) tokens of text: the target at each position is the next token."""


@dataclass(frozen=True)
class Examples:
    """tokens, targets: (B, T). Inputs, and the target at each of them; −100 where the loss ignores the position."""

    tokens: NDArray[np.int64]
    targets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice) -> Examples:
        return Examples(self.tokens[rows], self.targets[rows])


Rows: TypeAlias = Windows | Examples


@dataclass(frozen=True)
class HeldOutRows:
    """Rows to be scored. items, sizes: (B, T + 1), for the first input and each target. `items` is the index of the
    token's document or example; `sizes` is its number of bytes, None for synthetic tasks."""

    rows: Rows
    items: NDArray[np.int64]
    sizes: NDArray[np.uint32] | None


def width(rows: Rows) -> int:
    """T: tokens per row."""
    tokens = rows.tokens if isinstance(rows, Examples) else rows[:, 1:]
    return int(tokens.shape[1])
