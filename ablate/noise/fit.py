"""Least-squares fit of row and block effects to losses: y_rs = μ_r + b_s + e_rs. Rows may lack some blocks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
Row = Hashable
SeedLosses = Mapping[Any, Mapping[Any, float]]
"""Losses by row and seed, whose names may be of any hashable type."""
DIGITS = 8
ROUNDING = 10**-DIGITS
"""Nats below which scatter counts as rounding."""


class TwoWayFit:
    """Least-squares fit of one table. The means of rows or of blocks, whichever are more numerous, are projected out
    first, so that only the fewer of the two are solved for: runs × fewer² operations."""

    def __init__(self, table: SeedLosses, blocks: bool) -> None:
        self.rows = [row for row, of in table.items() if len(of) > 1]
        self.seeds = [seed for row in self.rows for seed in table[row]]
        self.sizes = [len(table[row]) for row in self.rows]
        self.squares, self.freedom = 0.0, 0
        self.deviations = self.residuals = self.leverage = np.empty(0)
        """For each run: deviation from the mean of its row, residual about row and block effects, and leverage."""
        if self.rows:
            self._solve(table, blocks)

    def _solve(self, table: SeedLosses, blocks: bool) -> None:
        losses = np.fromiter((loss for row in self.rows for loss in table[row].values()), np.float64)
        row_of = np.repeat(np.arange(len(self.rows)), self.sizes)
        self.deviations = _centred(losses, row_of)
        left, self.leverage = self.deviations, 1 / np.repeat(self.sizes, self.sizes)
        if blocks:
            places = {seed: place for place, seed in enumerate(dict.fromkeys(self.seeds))}
            block_of = np.array([places[seed] for seed in self.seeds])
            more, fewer = (row_of, block_of) if len(places) <= len(self.rows) else (block_of, row_of)
            left, self.leverage = _unexplained(self.deviations, more, fewer)
        self.residuals = np.where(abs(left) > ROUNDING, left, 0.0)
        self.squares = float(self.residuals @ self.residuals)
        self.freedom = len(losses) - round(float(self.leverage.sum()))

    def by_row(self) -> list[tuple[float, Row]]:
        """Mean squared residual of each row."""
        parts = np.split(self.residuals**2, np.cumsum(self.sizes)[:-1]) if self.rows else []
        return [(float(part.mean()), row) for row, part in zip(self.rows, parts, strict=True)]


def _centred(values: Floats, group_of: Places) -> Floats:
    """Values (runs,) minus the means of their groups."""
    means = np.bincount(group_of, values) / np.bincount(group_of)
    return values - means[group_of]


def _unexplained(values: Floats, more: Places, fewer: Places) -> tuple[Floats, Floats]:
    """Residuals of values (runs,) about the means of two crossed groupings, and each run's leverage.

    The projection P₁ on the first grouping is removed from the indicators X of the second: D = X − P₁X. So the residual
    is (1 − P₁)y − D(DᵀD)⁺Dᵀy, and the leverage 1/n₁ + diag D(DᵀD)⁺Dᵀ.
    """
    sizes = np.bincount(more)
    shares = np.zeros((len(sizes), fewer.max() + 1))
    np.add.at(shares, (more, fewer), 1.0)
    design = np.eye(shares.shape[1])[fewer] - (shares / sizes[:, None])[more]
    solved = design @ np.linalg.pinv(design.T @ design, rcond=1e-9)
    left = _centred(values, more)
    return left - solved @ (design.T @ left), 1 / sizes[more] + (solved * design).sum(axis=1)
