"""Error of a difference over held-out documents, which all seeds share. Pure.

With one loss per seed and document, both are random effects that cross (`reports.statistics.crossed`). The error over
seeds is that of the study's noise model; what documents add beyond it is given here, and no seed reduces it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from reports.statistics.crossed import crossed

FEWEST = 10
"""Documents below which nothing is said of others: the differences then speak of this text."""
TOLERANCE = 1e-5
"""Nats by which the mean over documents may miss the difference of the losses, which are rounded by themselves."""


def document_error(
    losses: pl.DataFrame | None, pair: tuple[str, str], seeds: Sequence[int], values: Sequence[float]
) -> float:
    """Standard error of a pair's mean difference over documents alone; 0 where the store does not tell.

    losses: of each arm, seed and document, the sum `nats` over a `weight`. values: the pair's differences by seed.
    """
    if losses is None or len(seeds) < 2:
        return 0.0
    known = losses.filter(pl.col("seed").is_in(list(seeds)))
    own, theirs = (known.filter(arm=name) for name in pair)
    cells = own.join(theirs, on=["seed", "item", "weight"], suffix="_base").sort("seed", "item")
    items = cells["item"].n_unique()
    if items < FEWEST or {own.height, theirs.height, cells.height} != {len(seeds) * items}:
        return 0.0
    sums, bases, weights = (cells[name].to_numpy().reshape(-1, items) for name in ("nats", "nats_base", "weight"))
    means = (sums - bases).sum(axis=1) / weights.sum(axis=1)
    if not np.allclose(means, values, rtol=0, atol=TOLERANCE):
        return 0.0
    table = crossed((sums - bases) / weights, weights[0])
    return math.sqrt(max(table.column_square - table.residual_square, 0.0) / math.prod(table.shape))
