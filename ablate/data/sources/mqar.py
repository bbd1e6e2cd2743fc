"""Synthetic task: multi-query associative recall."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat, PositiveInt, model_validator

from ablate.data.sources._synthetic import BLANK, IGNORED, Example, Graded, Level, SyntheticSource

MOST_COMPACT = 4
"""Minimum number of tokens per pair: key, value, query and the position after the query."""


class PairsSource(SyntheticSource):
    """Key-value pairs whose keys are queried again. Chance is 1 / pairs."""

    pairs: Graded = (4, 8, 16)
    """Key-value pairs of an example, each asked once; at most the smaller of `keys` and `values`."""
    keys: PositiveInt = 64
    """Size of the vocabulary of keys."""
    values: PositiveInt = 64
    """Size of the vocabulary of values."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if max(self.pairs) > min(self.keys, self.values):
            raise ValueError(f"{max(self.pairs)} pairs need at least as many keys and values")
        return self

    def chance(self, level: Level) -> float:
        return 1 / level["pairs"]


class MqarSource(PairsSource):
    """Key-value pairs, then every key once more as a query for its value. Arora et al. 2023 (Zoology),
    arXiv:2312.04927.

    k₁ v₁ k₂ v₂ … kₙ vₙ · · kᵢ · · · kⱼ · …: the target at each key of the second part is its value. Keys and values of
    one example are distinct, and redrawn for each example. The gaps before the queries follow a power law,
    P(g) ∝ g^(a − 1), as repetitions do in text: most keys come back soon, some late. An example has
    pairs × tokens_per_pair tokens, with blanks between the queries.

    Chance is 1 / pairs: the accuracy of guessing one of the values seen.
    """

    source: Literal["mqar"] = "mqar"
    tokens_per_pair: Graded = (8,)
    """Length of an example per pair, at least 4 tokens; what pairs and queries leave is blanks between the queries."""
    keys: PositiveInt = 128
    """Size of the vocabulary of keys."""
    values: PositiveInt = 128
    """Size of the vocabulary of values."""
    power: PositiveFloat = 0.01
    """a: exponent of the gaps' power law P(g) ∝ g^(a − 1)."""

    @model_validator(mode="after")
    def _is_compact(self) -> Self:
        if min(self.tokens_per_pair) < MOST_COMPACT:
            raise ValueError(f"tokens_per_pair must be at least {MOST_COMPACT}: a pair, and a query with its answer")
        return self

    @property
    def vocab_size(self) -> int:
        return 1 + self.keys + self.values

    def tokens_of(self, level: Level) -> int:
        return level["pairs"] * level["tokens_per_pair"]

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        pairs, length = level["pairs"], self.tokens_of(level)
        keys = 1 + draw.choice(self.keys, pairs, replace=False)
        values = 1 + self.keys + draw.choice(self.values, pairs, replace=False)
        tokens, targets = np.full(length, BLANK), np.full(length, IGNORED)
        tokens[0 : 2 * pairs : 2], tokens[1 : 2 * pairs : 2] = keys, values
        chances = _power_law((length - 2 * pairs) // 2, self.power)
        places = 2 * pairs + 2 * draw.choice(len(chances), pairs, replace=False, p=chances)
        tokens[places], targets[places] = keys, values
        return Example(tokens, targets)


@lru_cache
def _power_law(slots: int, power: float) -> NDArray[np.float64]:
    """P(g) ∝ g^(a − 1) for g = 1 … slots."""
    weights = np.arange(1, slots + 1) ** (power - 1)
    out: NDArray[np.float64] = weights / weights.sum()
    return out
