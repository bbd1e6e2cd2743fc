"""Settings at which tuning seeds disagree far more than elsewhere, and the noise of tuning without them. Pure.

Rates far above the best are sometimes erratic: of two seeds one ends a tenth of a nat higher or more. Pooled with the
rest, one such pair says of every arm that its tuning was noise. Tables (settings, seeds) have means of rows and columns
taken out; for each row j of a table,

    F_j = (SS − SS without row j)/(S − 1) / (SS without row j/ν without row j) ~ F(S − 1, ν without row j)

over all tables together, if σ is the same everywhere: the test for an outlying row in a linear model (Cook & Weisberg
1982, Residuals and Influence in Regression, §2.2). The row of the largest F goes where p · rows < 0.01, and the rest is
looked at again. A row that went has a noise of its own, the square root of the numerator.

Of 3,000 studies of six arms with three rates and two seeds each, all with the same σ, 28 lost a row. Rows with ten
times the σ of the others are found in 180 of 300, with twenty times in 239
(`tests/reports/statistics/test_erratic.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # whose parts are loaded when they are first used

from reports.statistics.estimates import Floats
from reports.statistics.tuning_noise import Noise, pooled, residual_noise

LEVEL = 0.01
"""Of studies without an erratic row, at most this share loses one."""

Row = tuple[int, int]
"""Of which table, and its place there."""


@dataclass(frozen=True)
class Steady:
    """The noise of the rows that agree, None where it is not known, and the standard deviation in each other."""

    noise: Noise | None
    erratic: dict[Row, float]


def steady_noise(tables: Sequence[Sequence[Sequence[float]]]) -> Steady:
    """Of losses by setting and seed; rows are pooled over tables."""
    arrays = [np.asarray(table, dtype=np.float64) for table in tables]
    kept = [list(range(len(table))) for table in arrays]
    level, erratic = LEVEL / max(sum(map(len, kept)), 1), dict[Row, float]()
    while True:
        own = [_noise(table, rows) for table, rows in zip(arrays, kept, strict=True)]
        noise = _together(own)
        rows = [(t, row) for t, some in enumerate(kept) for row in some]
        found = [test for t, row in rows if noise and (test := _tested(arrays, kept, own, (t, row), noise))]
        least = min(found, default=None)
        if least is None or least[0] >= level:
            return Steady(noise, erratic)
        _, _, (table, row), sd = least
        kept[table].remove(row)
        erratic[table, row] = sd


def _noise(table: Floats, rows: Sequence[int]) -> Noise | None:
    return residual_noise(table[rows]) if rows else None


def _together(noises: Sequence[Noise | None]) -> Noise | None:
    return pooled([noise for noise in noises if noise])


def _tested(
    tables: Sequence[Floats], kept: Sequence[Sequence[int]], own: Sequence[Noise | None], row: Row, whole: Noise
) -> tuple[float, float, Row, float] | None:
    """p of a row, the negative of its mean loss (of two rows that disagree, the higher one is erratic), the row, and
    its standard deviation. `own` is the noise of each table as `kept`, `whole` of all. None where nothing is left to
    compare the row with, or it is alone in its table."""
    table, place = row
    without = _noise(tables[table], [other for other in kept[table] if other != place])
    rest = _together([*own[:table], without, *own[table + 1 :]])
    if rest is None or not rest.sd or rest.freedom == whole.freedom:
        return None
    freedom = whole.freedom - rest.freedom
    square = (whole.freedom * whole.sd**2 - rest.freedom * rest.sd**2) / freedom
    p = float(scipy.stats.f.sf(square / rest.sd**2, freedom, rest.freedom))
    return p, -float(tables[table][place].mean()), row, math.sqrt(max(square, 0.0))
