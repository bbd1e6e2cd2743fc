"""The paired difference of two arms: over seeds, and over held-out documents where the store has each one's loss. Pure.

Other documents would give another difference, as other seeds would. Both are random effects that cross
(`reports.statistics.crossed`), so p-values and intervals are over both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from reports.findings.judging import Pair
from reports.statistics.crossed import Crossed, crossed
from reports.statistics.estimates import equivalence_p, mean_interval, paired_p

FEWEST = 10
"""Documents below which nothing is said of others: the differences then speak of this text."""
TOLERANCE = 1e-5
"""Nats by which the mean over documents may miss the difference of the losses, which are rounded by themselves."""


@dataclass(frozen=True)
class Gap:
    """Differences by seed, which are not all the same. `table` has them by document too, None where these lack."""

    values: tuple[float, ...]
    table: Crossed | None

    @property
    def sd(self) -> float:
        """Of seeds that would give the mean as much noise as seeds and documents do."""
        if self.table is None:
            return float(np.std(self.values, ddof=1))
        return self.table.spread_of_rows

    def ends(self, level: float) -> tuple[float, float]:
        """Of the interval at a two-sided level."""
        if self.table is not None:
            found = self.table.interval(level)
            return found.low, found.high
        _, low, high = mean_interval(self.values, level)
        return float(low), float(high)

    def p(self) -> float:
        """Of no difference."""
        return float(paired_p(self.values)) if self.table is None else self.table.p()

    def p_tie(self, margin: float) -> float:
        """Of a difference as large as the margin."""
        return float(equivalence_p(self.values, margin)) if self.table is None else self.table.p_within(margin)

    def room(self, _level: float) -> float:
        """It has none for the noise of tuning."""
        return 0.0


def gap_of(losses: pl.DataFrame | None, pair: Pair, seeds: Sequence[int], values: Sequence[float]) -> Gap | None:
    """A pair's differences by seed; None with fewer than two, or where all are the same.

    losses: of each arm, seed and document, the sum `nats` over a `weight`.
    """
    if len(values) < 2 or np.ptp(values) == 0:
        return None
    return Gap(tuple(values), None if losses is None else _over_documents(losses, pair, seeds, values))


def _over_documents(losses: pl.DataFrame, pair: Pair, seeds: Sequence[int], values: Sequence[float]) -> Crossed | None:
    """None with too few documents, and where the store does not have all that the differences are means over."""
    known = losses.filter(pl.col("seed").is_in(list(seeds)))
    own, theirs = (known.filter(arm=name) for name in pair)
    cells = own.join(theirs, on=["seed", "item", "weight"], suffix="_base").sort("seed", "item")
    items = cells["item"].n_unique()
    if items < FEWEST or {own.height, theirs.height, cells.height} != {len(seeds) * items}:
        return None
    sums, bases, weights = (cells[name].to_numpy().reshape(-1, items) for name in ("nats", "nats_base", "weight"))
    means = (sums - bases).sum(axis=1) / weights.sum(axis=1)
    if not np.allclose(means, values, rtol=0, atol=TOLERANCE):
        return None
    return crossed((sums - bases) / weights, weights[0])
