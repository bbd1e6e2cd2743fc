"""Synthetic task: memorisation of facts."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from ablate.data.sources._synthetic import Example, Graded, Level, SyntheticSource, Tokens


class MemorisationSource(SyntheticSource):
    """Facts that are the same in every example, to be stored in the weights. Poli et al. 2024 (MAD), arXiv:2403.17844.

    Each key has a value, drawn once with `facts_seed`; an example is a row of keys, and the target at each is its
    value. The row does not contain the answers: the task measures how many facts the weights hold. With several numbers
    of facts, smaller sets are the first facts of larger ones. Validation uses the same facts. Chance is 1 / values.
    """

    source: Literal["memorisation"] = "memorisation"
    facts: Graded = (64, 256, 1024)
    """Number of key-value facts to learn; in a list, smaller sets are the first facts of larger ones."""
    questions: PositiveInt = 32
    """Number of keys in an example."""
    values: PositiveInt = 64
    """Size of the vocabulary of values; chance is 1 / values."""
    facts_seed: NonNegativeInt = 0
    """Seed of the keys' values, independent of the run's seed: all seeds of a study learn the same facts."""

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
