"""Several arms against one baseline, by their joint distribution. Dunnett 1955, doi:10.1080/01621459.1955.10501294.

    d_i = x_i − x_0        error = s·√(2/n), s with ν degrees of freedom for all arms; `shared` is each arm's own

    P(|d_i| > c for any of k) = 1 − E_{χ², z} [P(|√ρ·z + √(1 − ρ)·ε| ≤ c / scale)]^k        z, ε ~ N(0, 1)
    scale² = ν/χ² + r        ρ = ½·(ν/χ²) / scale²        r = shared² / error²        χ² ~ χ²(ν)

since half of the variance of each d_i is the baseline's. If the dependence of the tests is unknown, the bound is
k·P(|d_i| > c) (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import scipy  # loads its parts on first use
from scipy import special  # scipy.stats takes seconds to load

from ablate.noise.fit import Floats

Z, _DENSITY = np.polynomial.hermite_e.hermegauss(96)
Z_WEIGHTS = _DENSITY / _DENSITY.sum()
NODES, TAIL = 128, 1e-12
"""Number of nodes of χ² at which probabilities are integrated, and the probability beyond each of the outer ones."""
FURTHEST = 200.0
"""Largest threshold, in standard errors."""


@dataclass(frozen=True)
class Joint:
    """Tests of arms against one baseline on the same seeds, with one pooled noise of `freedom` degrees of freedom.

    beyond: r = shared² / error², the largest of any pair.
    """

    freedom: int
    beyond: float = 0.0

    def any_beyond(self, reach: float, tests: int) -> float:
        """Two-sided probability that any of `tests` differences without effect exceeds `reach` standard errors."""
        stretch, weights = spread_of(self.freedom)
        scale = np.hypot(stretch, math.sqrt(self.beyond))
        correlation = (stretch**2 / (2 * scale**2))[:, None]
        centre, own = np.sqrt(correlation) * Z, np.sqrt(1 - correlation)
        inside = (reach / scale)[:, None]  # (nodes of χ², 1); with Z: (nodes of χ², nodes of z)
        tail = special.ndtr((centre - inside) / own) + special.ndtr((-centre - inside) / own)
        any_of = -np.expm1(tests * np.log1p(-np.minimum(tail, 1 - 1e-15)))
        return float(weights @ any_of @ Z_WEIGHTS)

    def reach(self, level: float) -> float:
        """Standard errors that one difference without effect exceeds with this two-sided probability; at most
        `FURTHEST`."""
        if not self.beyond:
            return min(float(-special.stdtrit(self.freedom, level / 2)), FURTHEST)
        return _root(lambda reach: self.any_beyond(reach, 1) - level)


@lru_cache(maxsize=4096)
def any_wrong(level: float, tests: int, joint: Joint | None = None) -> float:
    """The probability that any of `tests` tests, each at `level`, errs; an upper bound if their dependence is unknown
    (`joint` is None)."""
    most = min(1.0, tests * level)
    if joint is None or tests == 1 or not 0 < level < 1:
        return most
    reach = joint.reach(level)
    return most if reach == FURTHEST else min(most, max(level, joint.any_beyond(reach, tests)))


@lru_cache(maxsize=4096)
def level_of_each(alpha: float, tests: int, joint: Joint | None = None) -> float:
    """The level of each of `tests` tests at which any errs with probability `alpha`: the inverse of `any_wrong`."""
    if joint is None or tests == 1:
        return alpha / tests
    reach = _root(lambda reach: joint.any_beyond(reach, tests) - alpha)
    return max(joint.any_beyond(reach, 1), alpha / tests)


def _root(falling: Callable[[float], float]) -> float:
    """The reach at which a falling function crosses zero; at most `FURTHEST`."""
    if falling(FURTHEST) >= 0:
        return FURTHEST
    return float(scipy.optimize.brentq(falling, 0.0, FURTHEST, xtol=1e-10))


@cache
def spread_of(freedom: int) -> tuple[Floats, Floats]:
    """√(ν/χ²) at `NODES` nodes, with weights that sum to 1: the trapezoidal rule in ln χ², whose density falls off
    smoothly on both sides."""
    low, high = np.log([2 * special.gammaincinv(freedom / 2, TAIL), special.chdtri(freedom, TAIL)])
    square = np.exp(np.linspace(low, high, NODES))
    log_density = (special.xlogy(freedom, square) - square) / 2  # of ln χ², up to a constant
    weights = np.exp(log_density - log_density.max())
    return np.sqrt(freedom / square), weights / weights.sum()
