"""Running sums modulo a number."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from ablate.data.sources._synthetic import Example, Graded, Level, SyntheticSource


class Counting(SyntheticSource):
    """Digits 0 … m − 1; the target at each is the sum of all digits so far, modulo m."""

    length: Graded = (8, 16, 32)
    """Digits of an example, each with a target; training cycles through the lengths of a list."""

    @property
    @abstractmethod
    def base(self) -> int:
        """m: the modulus."""

    @property
    def vocab_size(self) -> int:
        return 1 + 2 * self.base

    def tokens_of(self, level: Level) -> int:
        return level["length"]

    def chance(self, level: Level) -> float:
        return 1 / self.base

    def example(self, level: Level, draw: np.random.Generator) -> Example:
        """Digit d is token 1 + d; sum s is token 1 + m + s."""
        digits = draw.integers(self.base, size=level["length"])
        return Example(1 + digits, 1 + self.base + digits.cumsum() % self.base)
