"""Synthetic task: selective copying."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import PositiveInt, model_validator

from ablate.data.sources._synthetic import BLANK, Example, Graded, Level, SyntheticSource, asked_at

MARK = 1


class SelectiveCopyingSource(SyntheticSource):
    """Copy the symbols scattered among blanks, in order. Gu & Dao 2023 (Mamba), arXiv:2312.00752; Poli et al. 2024
    (MAD), arXiv:2403.17844.

    · a · · b · c · · then a mark for each symbol, whose target is the symbol. The symbols' positions are redrawn for
    each example, so a model has to select by content. Chance is 1 / symbols.
    """

    source: Literal["selective_copying"] = "selective_copying"
    count: Graded = (4, 8, 16)
    """Number of symbols to copy."""
    length: Graded = (64,)
    """Number of positions over which the symbols are scattered."""
    symbols: PositiveInt = 16
    """Size of the vocabulary of symbols; chance is 1 / symbols."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if max(self.count) > min(self.length):
            raise ValueError(f"{max(self.count)} symbols do not fit into a length of {min(self.length)}")
        return self

    @property
    def vocab_size(self) -> int:
        return 2 + self.symbols

    def tokens_of(self, level: Level) -> int:
        return level["length"] + level["count"]

    def chance(self, level: Level) -> float:
        return 1 / self.symbols

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        count, length = level["count"], level["length"]
        symbols = 2 + draw.integers(self.symbols, size=count)
        tokens = np.full(length + count, BLANK)
        tokens[np.sort(draw.choice(length, count, replace=False))] = symbols
        tokens[length:] = MARK
        return asked_at(tokens, dict(zip(range(length, length + count), symbols, strict=True)))
