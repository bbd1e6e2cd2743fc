"""Independent references: least squares with dummy variables, t-tests with its residuals, and Holm's correction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]


def design(cells: Sequence[tuple[object, object]]) -> Floats:
    """One column of zeros and ones for every row and every block of these (row, block) pairs."""
    rows, blocks = (list(dict.fromkeys(each)) for each in zip(*cells, strict=True))
    return np.array([[row == r for r in rows] + [block == b for b in blocks] for row, block in cells], dtype=float)


@dataclass(frozen=True)
class Regression:
    """Ordinary least squares with the covariance s²·(XᵀX)⁻¹."""

    coefficients: Floats
    errors: Floats
    freedom: int

    @classmethod
    def of(cls, y: Floats, x: Floats) -> Regression:
        """y: (n,); x: (n, columns) of full rank."""
        coefficients = np.linalg.solve(x.T @ x, x.T @ y)
        rest, freedom = y - x @ coefficients, len(y) - x.shape[1]
        errors = np.sqrt(np.diag(np.linalg.inv(x.T @ x)) * (rest @ rest) / freedom)
        return cls(coefficients, errors, freedom)

    @property
    def p_values(self) -> Floats:
        return np.asarray(2 * stats.t.sf(abs(self.coefficients / self.errors), self.freedom))

    def interval(self, place: int) -> tuple[float, float]:
        """The 95 % interval of a coefficient."""
        low, high = stats.t.interval(0.95, self.freedom, self.coefficients[place], self.errors[place])
        return float(low), float(high)


def least_squares(cells: Sequence[tuple[object, object]], losses: Sequence[float]) -> tuple[float, int]:
    """The sum of squared residuals and its degrees of freedom."""
    if not cells:
        return 0.0, 0
    x, y = design(cells), np.array(losses)
    rest = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return float(rest @ rest), len(y) - int(np.linalg.matrix_rank(x))


def holm(p_values: Sequence[float]) -> list[float]:
    """Step by step (Holm 1979): the smallest p times the number of tests, the next one times one less, …"""
    corrected, largest = [0.0] * len(p_values), 0.0
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[place]))
        corrected[place] = largest
    return corrected
