"""Parity."""

from __future__ import annotations

from typing import Literal

from ablate.data.sources._counting import Counting


class ParitySource(Counting):
    """Is the number of ones so far odd? State tracking in its smallest form: Hahn 2020, arXiv:1906.06755; Delétang et
    al. 2022, arXiv:2207.02098; Grazzi et al. 2024, arXiv:2411.12537.

    Random bits, and the parity of all so far asked at each. Ask longer rows than were trained on with
    `evals.diagnostics.at.length`. Chance is 1 / 2; the accuracy is over all places, the first of which are easy.
    """

    source: Literal["parity"] = "parity"

    @property
    def base(self) -> int:
        return 2
