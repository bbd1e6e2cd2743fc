"""Reversal."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from ablate.data.sources._synthetic import Example, Graded, Level, SyntheticSource, next_tokens

MARK = 1


class ReversalSource(SyntheticSource):
    """A sequence, a mark, and the sequence reversed. Delétang et al. 2022, arXiv:2207.02098.

    x₁ … xₙ ⊢ xₙ … x₁, in which the second half is predicted. Chance is 1 / symbols.
    """

    source: Literal["reversal"] = "reversal"
    length: Graded = (4, 8)
    """n."""
    symbols: PositiveInt = 16

    @property
    def vocab_size(self) -> int:
        return 2 + self.symbols

    def tokens_of(self, level: Level) -> int:
        return 2 * level["length"]

    def chance(self, level: Level) -> float:
        return 1 / self.symbols

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        length = level["length"]
        symbols = 2 + draw.integers(self.symbols, size=length)
        return next_tokens(np.concatenate((symbols, [MARK], symbols[::-1])), range(length + 1, 2 * length + 1))
