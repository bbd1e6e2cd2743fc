"""Summary of one difference over several stores, which may differ by more than noise. Pure.

    y_i ~ N(θ_i, s_i²)      θ_i ~ N(μ, τ²)      w_i = 1 / (s_i² + τ²)      μ = Σ w_i y_i / Σ w_i

τ² solves Σ w_i (y_i − μ)² = k − 1, and is 0 if the left side is smaller even at 0 (Paule and Mandel 1982,
doi:10.6028/jres.087.022). The interval of μ is Student's with k − 1 degrees of freedom and the standard error 1 / √Σ
w_i (Hartung and Knapp 2001, doi:10.1002/sim.791, whose factor is 1 for this τ², or is not let below it). So two stores
hardly determine a mean: they say little about the variation between stores. Q is tested by χ² with k − 1 degrees of
freedom; I² = max(0, 1 − (k − 1) / Q) is the share of the scatter that noise does not explain (Higgins and Thompson
2002, doi:10.1002/sim.1186).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads its submodules on first use
from scipy import special  # scipy.stats takes seconds to load

from reports.judge.verdicts import ALPHA


@dataclass(frozen=True)
class RandomEffects:
    """Mean over stores with its interval and two-sided p, and the heterogeneity of the stores.

    `tau` is the standard deviation of true differences between stores. A small `q_p` means that noise alone does not
    explain the scatter; `i2` is the share that it does not explain.
    """

    mean: float
    low: float
    high: float
    p: float
    tau: float
    q: float
    q_p: float
    i2: float
    stores: int


def random_effects(values: Sequence[float], errors: Sequence[float]) -> RandomEffects:
    """Summary of differences with these standard errors. Raises ValueError for fewer than two, or an error of 0 or
    less."""
    count = len(values)
    if count < 2 or count != len(errors) or min(errors) <= 0:
        raise ValueError("needs two differences or more, each with a standard error above 0")
    y, variance = np.asarray(values, dtype=float), np.asarray(errors, dtype=float) ** 2

    def scatter(tau2: float) -> tuple[float, float, float]:
        """Σ w (y − μ)², μ and Σ w at τ² = tau2."""
        weights = 1 / (variance + tau2)
        mean = float(weights @ y / weights.sum())
        return float(weights @ (y - mean) ** 2), mean, float(weights.sum())

    q, freedom = scatter(0.0)[0], count - 1
    tau2 = 0.0
    if q > freedom:
        most = float(((y - y.mean()) ** 2).sum())  # where each weight is below 1/most, the sum is below 1
        tau2 = scipy.optimize.brentq(lambda at: scatter(at)[0] - freedom, 0.0, most, xtol=1e-15 * most)
    _, mean, weight = scatter(tau2)
    error = 1 / math.sqrt(weight)
    reach = -float(special.stdtrit(freedom, ALPHA / 2)) * error
    return RandomEffects(
        mean=mean,
        low=mean - reach,
        high=mean + reach,
        p=2 * float(special.stdtr(freedom, -abs(mean) / error)),
        tau=math.sqrt(tau2),
        q=q,
        q_p=float(special.chdtrc(freedom, q)),
        i2=max(0.0, 1 - freedom / q) if q > 0 else 0.0,
        stores=count,
    )
