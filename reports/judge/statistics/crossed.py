"""Two crossed sources of noise in one table, such as seeds × documents. Pure.

    y_rc = μ + A_r + B_c + E_rc        A ~ N(0, σ_A²), B ~ N(0, σ_B²), E ~ N(0, σ_E²), one value per cell

A table of paired loss differences, one per seed and held-out document, has both: other seeds would change the mean, and
so would other documents. With mean squares MS_A = C·Σ(ȳ_r − ȳ)²/(R − 1), MS_B likewise, and MS_E of the residual,

    σ_A² = (MS_A − MS_E) / C       σ_B² = (MS_B − MS_E) / R       σ_E² = MS_E       (each clipped at zero)
    ȳ ± √[t²(R − 1)·MS_A + t²(C − 1)·max(MS_B − MS_E, 0)] / √(R·C)

The first term alone is the t-interval over rows. The columns' term is added in quadrature, with its own t quantile (the
method of variance estimates recovery, Zou and Donner 2008, doi:10.1002/sim.3095), so columns never shorten the
interval. With three rows, Satterthwaite's degrees of freedom for MS_A + MS_B − MS_E cover 91 to 96 %; this interval
covers 95 to 98 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy  # loads its submodules on first use
from numpy.typing import ArrayLike

from reports.judge.statistics.estimates import Interval
from reports.judge.verdicts import ALPHA

LEAST_P = 1e-100
"""Smallest level at which quantiles of t are finite for all degrees of freedom."""


@dataclass(frozen=True)
class Crossed:
    """The mean of a table and its mean squares."""

    mean: float
    shape: tuple[int, int]
    row_square: float
    column_square: float
    residual_square: float

    def interval(self, alpha: float = ALPHA) -> Interval:
        """Confidence interval of the mean over the populations of rows and columns."""
        row, column = (float(-scipy.special.stdtrit(count - 1, alpha / 2)) for count in self.shape)
        beyond = max(self.column_square - self.residual_square, 0.0)
        root = math.hypot(row * math.sqrt(self.row_square), column * math.sqrt(beyond))
        half = root / math.sqrt(math.prod(self.shape))
        return Interval(self.mean, self.mean - half, self.mean + half)

    def p(self) -> float:
        """Level at which the interval of the mean ends at zero; NaN if all values are equal."""
        half = abs(self.mean)
        if self.row_square == self.column_square == 0:
            return math.nan
        if self.interval(LEAST_P).half_width < half:
            return LEAST_P

        def wider(log_level: float) -> float:
            return self.interval(math.exp(log_level)).half_width - half

        return math.exp(scipy.optimize.brentq(wider, math.log(LEAST_P), 0.0))

    @property
    def row_variance(self) -> float:
        """σ_A²: variance between rows beyond the residual's."""
        return max(0.0, self.row_square - self.residual_square) / self.shape[1]


def crossed(table: ArrayLike, weights: ArrayLike | None = None) -> Crossed:
    """Analyse a full table (R, C), both at least 2. weights: (C,), such as tokens if cells are means over them.

    Raises ValueError for a table with gaps or fewer than 2 × 2 values.
    """
    values = np.asarray(table, dtype=np.float64)
    if values.ndim != 2 or min(values.shape) < 2 or not np.isfinite(values).all():
        raise ValueError(f"needs a full table of at least 2 × 2 numbers, not one of shape {values.shape}")
    if weights is not None:
        # Values whose plain mean is the weighted mean, and whose columns scatter as the ratio Σ w·y / Σ w does. The
        # delta method: y → ȳ + (w / w̄)·(y − ȳ), as long documents pull the ratio harder.
        weight = np.asarray(weights, dtype=np.float64)
        relative = weight / weight.mean()
        weighted = float((values * relative).mean())
        values = weighted + relative * (values - weighted)
    rows, columns = values.shape
    mean, by_row, by_column = values.mean(), values.mean(axis=1), values.mean(axis=0)
    left = values - by_row[:, None] - by_column + mean
    return Crossed(
        float(mean),
        (rows, columns),
        float(columns * by_row.var(ddof=1)),
        float(rows * by_column.var(ddof=1)),
        float(np.square(left).sum() / ((rows - 1) * (columns - 1))),
    )
