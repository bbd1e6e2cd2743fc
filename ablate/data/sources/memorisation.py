"""Memorisation."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from ablate.data.sources._synthetic import Example, Graded, Level, SyntheticSource, Tokens


class MemorisationSource(SyntheticSource):
    """Facts that are the same in every example, and so must be learnt. Poli et al. 2024 (MAD), arXiv:2403.17844.

    Each key has a value, drawn once with `facts_seed`; a row of keys asks for the value of each. Nothing in the row
    says it: what counts is how many facts the weights hold. With several numbers of facts, the fewer are the first of
    the more. Validation asks the same facts. Chance is 1 / values.
    """

    source: Literal["memorisation"] = "memorisation"
    facts: Graded = (64, 256, 1024)
    """Number of key-value facts to be learnt; in a list, smaller sets are the first facts of larger ones."""
    questions: PositiveInt = 32
    """Keys in an example."""
    values: PositiveInt = 64
    """Size of the vocabulary of values; chance is 1 / values."""
    facts_seed: NonNegativeInt = 0
    """Seed that draws the value of each key, whatever the seed of the run: all seeds of a study learn the same
    facts."""

    @property
    def vocab_size(self) -> int:
        return 1 + max(self.facts) + self.values

    def tokens_of(self, level: Level) -> int:
        return self.questions

    def chance(self, level: Level) -> float:
        return 1 / self.values

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        facts = draw.integers(level["facts"], size=self.questions)
        values = _values(self.facts_seed, max(self.facts), self.values)
        return Example(1 + self.values + facts, 1 + values[facts])


@lru_cache
def _values(seed: int, facts: int, values: int) -> Tokens:
    return np.random.default_rng(seed).integers(values, size=facts)
