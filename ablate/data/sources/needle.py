"""Synthetic task: a needle in a haystack."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from ablate.data.sources._synthetic import Example, GradedFromZero, Level, SyntheticSource, Tokens, asked_at


class NeedleSource(SyntheticSource):
    """Retrieve the value of one key in a haystack. The test of Kamradt 2023 in symbols, like the passkey retrieval of
    Mohtashami & Jaggi 2023, arXiv:2305.16300.

    `depth` tokens, the key and its value, `distance` tokens, and the key once more, where the target is the value. The
    haystack is made of value tokens; it contains `others` more keys, each before a value, as far as there is room.
    Chance is 1 / (1 + others): the accuracy of guessing one of the values that followed a key.
    """

    source: Literal["needle"] = "needle"
    depth: GradedFromZero = (0, 32, 64)
    """Tokens before the needle."""
    distance: GradedFromZero = (16, 64)
    """Tokens between the needle and the question."""
    others: PositiveInt = 3
    """Number of other keys in the haystack, as far as there is room for them."""
    keys: PositiveInt = 16
    """Size of the vocabulary of keys."""
    values: PositiveInt = 16
    """Size of the vocabulary of values, which the haystack uses too."""

    @property
    def vocab_size(self) -> int:
        return 1 + self.keys + self.values

    def tokens_of(self, level: Level) -> int:
        return level["depth"] + level["distance"] + 3

    def chance(self, level: Level) -> float:
        return 1 / (1 + self._others(level))

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        depth, length = level["depth"], self.tokens_of(level)
        tokens = 1 + self.keys + draw.integers(self.values, size=length)
        keys = 1 + draw.choice(self.keys, 1 + self._others(level), replace=False)
        tokens[draw.choice(_places(level), len(keys) - 1, replace=False)] = keys[1:]
        tokens[[depth, length - 1]] = keys[0]
        return asked_at(tokens, {length - 1: tokens[depth + 1]})

    def _others(self, level: Level) -> int:
        return min(self.others, self.keys - 1, len(_places(level)))


def _places(level: Level) -> Tokens:
    """Possible positions of the other keys: every second haystack token, if another follows it."""
    depth, distance = level["depth"], level["distance"]
    return np.concatenate((np.arange(0, depth - 1, 2), depth + 2 + np.arange(0, distance - 1, 2)))
