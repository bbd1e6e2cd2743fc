"""Synthetic task: fuzzy in-context recall."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from ablate.data.sources._synthetic import Example, Graded, Level, next_tokens
from ablate.data.sources.mqar import PairsSource


class FuzzyRecallSource(PairsSource):
    """Recall with keys and values of several tokens each. Poli et al. 2024 (MAD), arXiv:2403.17844.

    Pairs, then every key once more in random order, each followed by its value. Keys have 1 to `key_tokens` tokens,
    values 1 to `value_tokens`, from separate vocabularies. The target after a whole key is the first token of its
    value; no two values of an example begin alike. Chance is 1 / pairs.
    """

    source: Literal["fuzzy_recall"] = "fuzzy_recall"
    pairs: Graded = (4, 8)
    """Key-value pairs of an example, each asked once; at most the smaller of `keys` and `values`."""
    key_tokens: PositiveInt = 3
    """Largest number of tokens in a key; lengths are uniform from 1."""
    value_tokens: PositiveInt = 3
    """Largest number of tokens in a value; lengths are uniform from 1."""
    keys: PositiveInt = 16
    """Size of the vocabulary of key tokens."""
    values: PositiveInt = 16
    """Size of the vocabulary of value tokens."""

    @property
    def vocab_size(self) -> int:
        return 1 + self.keys + self.values

    def tokens_of(self, level: Level) -> int:
        return 2 * level["pairs"] * (self.key_tokens + self.value_tokens) - 1

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        pairs = level["pairs"]
        drawn: dict[tuple[int, ...], None] = {}
        while len(drawn) < pairs:
            length = draw.integers(1, self.key_tokens + 1)
            drawn[tuple((1 + draw.integers(self.keys, size=length)).tolist())] = None
        keys = list(drawn)
        values = []
        for first in draw.choice(self.values, pairs, replace=False):
            more = draw.integers(self.values, size=draw.integers(self.value_tokens))
            values.append([1 + self.keys + int(token) for token in (first, *more)])
        sequence = [token for pair in zip(keys, values, strict=True) for part in pair for token in part]
        asked = []
        for pair in draw.permutation(pairs):
            sequence += keys[pair]
            asked.append(len(sequence))
            sequence += values[pair]
        return next_tokens(np.array(sequence), asked)
