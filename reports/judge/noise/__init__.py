"""Noise: scatter of losses, penalties of tuned rates, and differences that a study can detect. Pure numpy and scipy.

Planning uses it to choose rates and to predict power, reports to judge; `docs/statistics.md` states the rule.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Row = Hashable
SeedLosses = Mapping[Any, Mapping[Any, float]]
"""Losses by row (an arm, or an arm's tuning runs) and seed; infinite for a failed run."""
ROUNDING = 1e-8
"""Nats below which scatter counts as rounding."""


@dataclass(frozen=True)
class Noise:
    """Standard deviation of one run in nats, with its degrees of freedom."""

    sd: float
    freedom: float
