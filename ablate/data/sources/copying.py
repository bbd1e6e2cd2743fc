"""Synthetic task: copying a sequence."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from ablate.data.sources._synthetic import Example, Graded, Level, SyntheticSource, next_tokens

MARK = 1


class SymbolsSource(SyntheticSource):
    """A sequence of symbols, to be reproduced. Chance is 1 / symbols."""

    length: Graded = (4, 8, 16)
    """n: number of symbols."""
    symbols: PositiveInt = 16
    """Size of the vocabulary of symbols; chance is 1 / symbols."""

    @property
    def vocab_size(self) -> int:
        return 2 + self.symbols

    def tokens_of(self, level: Level) -> int:
        return 2 * level["length"]

    def chance(self, level: Level) -> float:
        return 1 / self.symbols


class CopyingSource(SymbolsSource):
    """A sequence, a mark, and the sequence again. Jelassi et al. 2024, arXiv:2402.01032; for length generalisation
    Kazemnejad et al. 2023, arXiv:2305.19466.

    x₁ … xₙ ⊢ x₁ … xₙ: the targets are the tokens after the mark, each predicted from those before it.
    `evals.diagnostics.at.length` tests longer sequences than were trained on. Chance is 1 / symbols.
    """

    source: Literal["copying"] = "copying"

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        length = level["length"]
        symbols = 2 + draw.integers(self.symbols, size=length)
        return next_tokens(np.concatenate((symbols, [MARK], symbols)), range(length + 1, 2 * length + 1))
