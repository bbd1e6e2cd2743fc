"""Synthetic task: induction heads."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from ablate.data.sources._synthetic import Example, Graded, Level, SyntheticSource, asked_at

MARK = 1


class InductionHeadsSource(SyntheticSource):
    """Recall the token after a mark when the mark comes again. Dao et al. 2022 (H3), arXiv:2212.14052, after Olsson
    et al. 2022, arXiv:2209.11895.

    … ⊢ x … ⊢: among random symbols, the mark stands at a random position and at the end, where the target is x. Chance
    is 1 / symbols.
    """

    source: Literal["induction_heads"] = "induction_heads"
    length: Graded = (32, 64, 128)
    """Tokens of an example, at least 3."""
    symbols: PositiveInt = 16
    """Size of the vocabulary of symbols; chance is 1 / symbols."""

    @property
    def vocab_size(self) -> int:
        return 2 + self.symbols

    def tokens_of(self, level: Level) -> int:
        return max(3, level["length"])

    def chance(self, level: Level) -> float:
        return 1 / self.symbols

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        length = self.tokens_of(level)
        tokens = 2 + draw.integers(self.symbols, size=length)
        place = int(draw.integers(length - 2))
        tokens[place] = tokens[-1] = MARK
        return asked_at(tokens, {length - 1: tokens[place + 1]})
