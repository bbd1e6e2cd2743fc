"""Share of a score's variance that each of several settings explains: a Bayesian additive model, by Gibbs sampling.

    y = mean + Σ_j f_j(x_j) + noise,   f_j = Σ_k b_jk φ_k,   b_jk ~ N(0, t_j² w_k),   t_j ~ half-Cauchy(SCALE)

φ are orthonormal over the space: Legendre polynomials of a number, contrasts of a choice; w_k favours smooth functions.
So Σ_k b_jk² is the variance that a setting causes over the whole space, wherever it was sampled. The model is of the
score given the settings, so a sampler that prefers good scores does not bias it. The prior on t_j, as in the horseshoe
(Carvalho et al. 2010), shrinks settings without effect to zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DEGREE = 4
SCALE = 0.5
"""Scale of the prior of a setting's standard deviation; scores have a standard deviation of about 1."""
SWEEPS, BURNT = 1000, 200


@dataclass(frozen=True)
class AdditiveTerm:
    """Features of one setting, (trials, k), and their prior weights, (k,)."""

    features: Floats
    weights: Floats


def number(values: Floats, low: float, high: float) -> AdditiveTerm:
    """Term of a number, uniform between `low` and `high`; NaN for trials that lack the setting."""
    has = ~np.isnan(values)
    x = np.where(has, 2 * (values - low) / ((high - low) or 1.0) - 1, 0.0)
    degrees = np.arange(1, DEGREE + 1)
    polynomials: Floats = legendre.legvander(x, DEGREE)[:, 1:].astype(np.float64)
    features = polynomials * np.sqrt(2 * degrees + 1) * has[:, None]
    return _with_absent(features, 1.0 / degrees**2, has)


def choice(levels: NDArray[np.int64], count: int) -> AdditiveTerm:
    """Term of a choice among `count` levels; −1 for trials that lack the setting."""
    has = levels >= 0
    contrasts = np.linalg.qr(np.column_stack([np.ones(count), np.eye(count)[:, 1:]]))[0][:, 1:] * np.sqrt(count)
    features = contrasts[np.where(has, levels, 0)] * has[:, None]
    return _with_absent(features, np.full(count - 1, 1.0 / max(1, count - 1)), has)


def _with_absent(features: Floats, weights: Floats, has: NDArray[np.bool_]) -> AdditiveTerm:
    """Add an indicator feature for trials that lack the setting, if there are any."""
    if has.all():
        return AdditiveTerm(features, weights)
    return AdditiveTerm(np.column_stack([features, ~has]), np.append(weights, 1.0))


def shares(scores: Floats, terms: Sequence[AdditiveTerm], seed: int = 0) -> Floats:
    """Posterior draws of each setting's share of the variance, (draws, settings).

    Args:
        scores: (trials,), of about unit variance.
    """
    rng = np.random.default_rng(seed)
    design = np.hstack([np.ones((len(scores), 1)), *(term.features for term in terms)])
    weights = np.concatenate([[1.0], *(term.weights for term in terms)])
    owner = np.concatenate([[-1], *(np.full(len(term.weights), j) for j, term in enumerate(terms))]).astype(int)
    sizes = np.array([len(term.weights) for term in terms])
    # sufficient statistics, so that a sweep does not depend on the number of trials
    gram, projected, squares = design.T @ design, design.T @ scores, float(scores @ scores)
    spread, auxiliary, noise = np.full(len(terms), 0.1), np.ones(len(terms)), 0.5
    draws = []
    for sweep in range(SWEEPS):
        # b given the rest: N(P⁻¹ Xᵀy / σ², P⁻¹) with precision P = XᵀX / σ² + diag(1 / prior), by its Cholesky factor
        prior = np.where(owner < 0, 1e4, spread[owner] * weights)  # flat prior for the mean
        factor = np.linalg.cholesky(gram / noise + np.diag(1 / prior))
        centre = np.linalg.solve(factor.T, np.linalg.solve(factor, projected / noise))
        b = centre + np.linalg.solve(factor.T, rng.standard_normal(len(prior)))
        # σ² given b: inverse gamma of the residual sum of squares
        left = max(squares - 2 * b @ projected + b @ gram @ b, 1e-9)
        noise = max((left / 2 + 1e-4) / rng.gamma(len(scores) / 2 + 1e-2), 1e-6)
        # t_j² given b; the half-Cauchy is a scale mixture of inverse gammas with an auxiliary variable per setting
        scaled = np.bincount(owner[1:], (b**2 / weights)[1:], len(terms))
        spread = np.maximum((1 / auxiliary + scaled / 2) / rng.gamma((sizes + 1) / 2), 1e-8)
        auxiliary = (1 / SCALE**2 + 1 / spread) / rng.gamma(1.0, size=len(terms))
        if sweep >= BURNT:
            # φ are orthonormal, so a setting's variance is the sum of its squared coefficients
            caused = np.bincount(owner[1:], (b**2)[1:], len(terms))
            draws.append(caused / (caused.sum() + noise))
    return np.array(draws)
