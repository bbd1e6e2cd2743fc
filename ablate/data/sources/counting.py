"""Synthetic tasks: running sums modulo a number."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

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


class ModularCountingSource(Counting):
    """The sum of all digits so far, modulo m: state tracking in the cyclic group of order m. Merrill, Petty & Sabharwal
    2024, arXiv:2404.08819; Delétang et al. 2022, arXiv:2207.02098.

    Random digits 0 … m − 1; the target at each is the sum so far. `evals.diagnostics.at.length` tests longer rows than
    were trained on. Chance is 1 / m; the accuracy is over all positions, the first of which are easy.
    """

    source: Literal["modular_counting"] = "modular_counting"
    modulus: Annotated[int, Field(ge=2)] = 5
    """m: modulus of digits and sums; chance is 1 / m."""

    @property
    def base(self) -> int:
        return self.modulus


class ParitySource(Counting):
    """The parity of the bits so far, the simplest state tracking. Hahn 2020, arXiv:1906.06755; Delétang et al. 2022,
    arXiv:2207.02098; Grazzi et al. 2024, arXiv:2411.12537.

    Random bits; the target at each is the parity of all bits so far. `evals.diagnostics.at.length` tests longer rows
    than were trained on. Chance is 1 / 2; the accuracy is over all positions, the first of which are easy.
    """

    source: Literal["parity"] = "parity"

    @property
    def base(self) -> int:
        return 2
