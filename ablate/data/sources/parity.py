"""Synthetic task: parity of bits."""

from __future__ import annotations

from typing import Literal

from ablate.data.sources._counting import Counting


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
