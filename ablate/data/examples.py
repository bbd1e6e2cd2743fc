"""Training examples from a corpus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Windows: TypeAlias = NDArray[np.int64]
"""(B, T + 1) tokens of text: each is to be predicted from those before it."""


@dataclass(frozen=True)
class Examples:
    """tokens, targets: (B, T). What is read, and what is to be said after each token; −100 where nothing is asked."""

    tokens: NDArray[np.int64]
    targets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice) -> Examples:
        return Examples(self.tokens[rows], self.targets[rows])


Rows: TypeAlias = Windows | Examples


@dataclass(frozen=True)
class HeldOutRows:
    """Rows to be scored. Of each token of a row and the target after it, (B, T + 1): `items`, the document or the
    example that it is of; `sizes`, the bytes that it stands for, None where there is no text."""

    rows: Rows
    items: NDArray[np.int64]
    sizes: NDArray[np.uint32] | None


def width(rows: Rows) -> int:
    """T."""
    tokens = rows.tokens if isinstance(rows, Examples) else rows[:, 1:]
    return int(tokens.shape[1])
