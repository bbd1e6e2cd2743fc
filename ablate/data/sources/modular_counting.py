"""Synthetic task: counting modulo a number."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ablate.data.sources._counting import Counting


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
