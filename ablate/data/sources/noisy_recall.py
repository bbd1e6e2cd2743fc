"""Synthetic task: noisy in-context recall."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from ablate.data.sources._synthetic import Example, GradedFromZero, Level, next_tokens
from ablate.data.sources.mqar import PairsSource


class NoisyRecallSource(PairsSource):
    """Recall among noise tokens. Poli et al. 2024 (MAD), arXiv:2403.17844.

    Key-value pairs, then every key once more in random order with its value, which is the target. Between pairs stand
    noise × pairs tokens from a vocabulary of their own, scattered at random. Chance is 1 / pairs.
    """

    source: Literal["noisy_recall"] = "noisy_recall"
    noise: GradedFromZero = (2,)
    """Noise tokens per pair."""
    noises: PositiveInt = 16
    """Size of the vocabulary of noise."""

    @property
    def vocab_size(self) -> int:
        return 1 + self.keys + self.values + self.noises

    def tokens_of(self, level: Level) -> int:
        return level["pairs"] * (4 + level["noise"]) - 1

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        pairs, noise = level["pairs"], level["pairs"] * level["noise"]
        keys = 1 + draw.choice(self.keys, pairs, replace=False)
        values = 1 + self.keys + draw.choice(self.values, pairs, replace=False)
        order = np.concatenate((np.arange(pairs), draw.permutation(pairs)))
        # All noise stands before the last pair, so that no example ends in tokens that no target depends on.
        before = np.sort(draw.integers(2 * pairs, size=noise))
        starts = 2 * np.arange(2 * pairs) + np.searchsorted(before, np.arange(2 * pairs), side="right")
        sequence = 1 + self.keys + self.values + draw.integers(self.noises, size=4 * pairs + noise)
        sequence[starts], sequence[starts + 1] = keys[order], values[order]
        return next_tokens(sequence, starts[pairs:] + 1)
