"""What a corpus gives to train on."""

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


def width(rows: Rows) -> int:
    """T."""
    tokens = rows.tokens if isinstance(rows, Examples) else rows[:, 1:]
    return int(tokens.shape[1])
