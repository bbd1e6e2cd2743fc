"""Questions of a synthetic task. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Question:
    """Examples of one difficulty, at their own length. tokens, targets: (examples, T); −100 for tokens not scored.

    `chance` is the accuracy of informed guessing, `floor` the least possible loss in nats per target; None if unknown.
    """

    level: Mapping[str, int]
    tokens: NDArray[np.int64]
    targets: NDArray[np.int64]
    chance: float | None
    floor: float | None
