"""Synthetic task: addition of decimal numbers."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ablate.data.sources._synthetic import Example, Graded, Level, SyntheticSource, Tokens, next_tokens

BASE = 10
PLUS, EQUALS = 1 + BASE, 2 + BASE


class AdditionSource(SyntheticSource):
    """a + b = c in decimal digits. Lee et al. 2023, arXiv:2307.03381; for length generalisation Kazemnejad et al. 2023,
    arXiv:2305.19466.

    a and b have `digits` digits, leading zeros included, c one more; the targets are the digits of c. With `reverse`,
    which the first paper finds easier, all numbers have their lowest digit first. `evals.diagnostics.at.digits` tests
    longer numbers than were trained on. Chance is 1 / 10; c's highest digit, 0 or 1, is easier to guess.
    """

    source: Literal["addition"] = "addition"
    digits: Graded = (1, 2, 3, 4)
    """Digits of a and of b, leading zeros included; training cycles through the lengths of a list."""
    reverse: bool = True
    """Whether numbers are written lowest digit first, the order in which carries arise."""

    @property
    def vocab_size(self) -> int:
        return 3 + BASE

    def tokens_of(self, level: Level) -> int:
        return 3 * level["digits"] + 2

    def chance(self, level: Level) -> float:
        return 1 / BASE

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        digits = level["digits"]
        a, b = draw.integers(BASE, size=(2, digits))
        parts = [1 + (number if self.reverse else number[::-1]) for number in (a, b, _sum(a, b))]
        sequence = np.concatenate((parts[0], [PLUS], parts[1], [EQUALS], parts[2]))
        return next_tokens(sequence, range(2 * digits + 2, 3 * digits + 3))


def _sum(a: Tokens, b: Tokens) -> Tokens:
    """(digits + 1,): digits of the sum, lowest first, as in a and b."""
    out = np.zeros(len(a) + 1, dtype=np.int64)
    out[:-1] = a + b
    for place in range(len(a)):
        out[place + 1] += out[place] // BASE
        out[place] %= BASE
    return out
