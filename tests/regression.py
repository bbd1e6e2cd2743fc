"""Independent references: least squares with dummy variables, t-tests with its residuals, Holm's and Dunnett's
corrections."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, optimize, special, stats

Floats = NDArray[np.float64]
Losses = Mapping[str, Sequence[float | None]]
"""Losses by arm and seed; None where a run is absent."""


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


@dataclass(frozen=True)
class PooledTest:
    """A difference of means over shared seeds, with the noise of all arms."""

    mean: float
    error: float
    freedom: int

    @property
    def p(self) -> float:
        return float(2 * stats.t.sf(abs(self.mean) / self.error, self.freedom))

    def p_within(self, margin: float) -> float:
        """The larger of two one-sided p-values."""
        return float(stats.t.sf((margin - abs(self.mean)) / self.error, self.freedom))

    def interval(self, confidence: float) -> tuple[float, float]:
        low, high = stats.t.interval(confidence, self.freedom, self.mean, self.error)
        return float(low), float(high)


def pooled(losses: Losses, arm: str, base: str) -> PooledTest:
    """The test of two arms of a study."""
    known = {name: {s: x for s, x in enumerate(of) if x is not None} for name, of in losses.items()}
    cells = [(name, seed) for name, of in known.items() for seed in of]
    squares, freedom = least_squares(cells, [known[name][seed] for name, seed in cells])
    differences = [known[arm][seed] - known[base][seed] for seed in known[arm] if seed in known[base]]
    error = math.sqrt(2 * squares / freedom / len(differences))
    return PooledTest(float(np.mean(differences)), error, freedom)


def holm(p_values: Sequence[float]) -> list[float]:
    """Step by step (Holm 1979): the smallest p times the number of tests, the next one times one less, …"""
    corrected, largest = [0.0] * len(p_values), 0.0
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[place]))
        corrected[place] = largest
    return corrected


def dunnett(p_values: Sequence[float], freedom: int) -> list[float]:
    """Step by step, with a multivariate t of correlation ½ in place of the number of tests."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        reach = float(stats.t.isf(p_values[place] / 2, freedom))
        largest = max(largest, _any_beyond(reach, len(p_values) - step, freedom))
        corrected[place] = largest
    return corrected


def dunnett_level(alpha: float, tests: int, freedom: int) -> float:
    """The level of each test at which the multivariate t exceeds any threshold with probability `alpha`."""
    reach = optimize.brentq(lambda reach: _any_beyond(reach, tests, freedom) - alpha, 0.1, 60)
    return float(2 * stats.t.sf(reach, freedom))


def _any_beyond(reach: float, tests: int, freedom: int) -> float:
    if tests == 1:
        return float(2 * stats.t.sf(reach, freedom))

    def given(baseline: float, scale: float) -> float:
        """Any beyond, given the baseline's mean and the ratio of estimated to true noise; all divided by √½."""
        limit = math.sqrt(2) * reach * scale
        own = special.ndtr(baseline - limit) + special.ndtr(-baseline - limit)
        density = math.exp(-(baseline**2) / 2) / math.sqrt(2 * math.pi)
        return density * (1.0 if own >= 1 else -math.expm1(tests * math.log1p(-own)))

    def over_baselines(scale: float) -> float:
        return float(integrate.quad(given, -12, 12, (scale,), epsabs=0, epsrel=1e-6, limit=200)[0])

    density = stats.chi(freedom, scale=1 / math.sqrt(freedom))
    ends = density.ppf([1e-14, 1 - 1e-14])
    whole = integrate.quad(
        lambda scale: over_baselines(scale) * density.pdf(scale), *ends, epsabs=0, epsrel=1e-5, limit=200
    )
    return float(whole[0])
