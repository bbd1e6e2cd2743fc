"""Compression: a synthetic task of storing a sequence in context."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from ablate.data.sources._synthetic import BLANK, Example, Graded, Level, SyntheticSource, asked_at

MARK = 1


class CompressionSource(SyntheticSource):
    """A sequence read once and then said whole, without a look at what has been said. After Poli et al. 2024 (MAD),
    arXiv:2403.17844.

    x₁ … xₙ, a mark, blanks: x₁ is asked at the mark, xᵢ₊₁ at the i-th blank. In the paper a separate decoder sees the
    mark's own vector alone; here the model itself answers. One with a state has to hold the sequence in it, as there;
    attention may look back at it, and so has the easier task. Chance is 1 / symbols.
    """

    source: Literal["compression"] = "compression"
    length: Graded = (8, 16, 32)
    """n: symbols to be read and then repeated."""
    symbols: PositiveInt = 16
    """Size of the vocabulary of symbols; chance is 1 / symbols."""

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
        tokens = np.concatenate((symbols, [MARK], np.full(length - 1, BLANK)))
        return asked_at(tokens, dict(zip(range(length, 2 * length), symbols, strict=True)))
