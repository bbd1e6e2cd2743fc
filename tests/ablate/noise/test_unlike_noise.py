"""How unlike the noise of arms is in recorded studies: the prior of moderated variances."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

RESULTS = Path(__file__).parents[3] / "studies" / "results"
PLAINLY_UNLIKE = {
    "cosine_attention", "deep_norms", "hybrid_recall", "masked_lm", "mqar", "norm_estimates", "optimizers",
    "qk_norm_lr", "swa_recall",
}  # fmt: skip
"""Studies of tasks that some seeds solve, or begin to learn, of placements of norms that hardly train, of a norm of
three features, of an optimizer far from the others, and of rates above the best."""
Losses = NDArray[np.float64]


def recorded() -> Iterator[tuple[str, Losses]]:
    """Losses (arms, seeds) of arms of a recorded study that have their seeds in common."""
    for path in sorted(RESULTS.glob("*.json")):
        tables: dict[tuple[str, ...], list[list[float]]] = {}
        for arm in json.loads(path.read_text())["arms"]:
            seeds = {seed: loss for seed, loss in arm["seeds"].items() if loss is not None}
            if len(seeds) > 2 and not arm["stalled"] and not arm["diverged"]:
                tables.setdefault(tuple(sorted(seeds)), []).append([seeds[seed] for seed in sorted(seeds)])
        yield from ((path.name.partition("@")[0], np.array(rows)) for rows in tables.values() if len(rows) > 2)


def log_likelihood(losses: Losses, spread: float, draw: np.random.Generator, draws: int = 4000) -> float:
    """ln p of the differences between arms, up to a constant: ln σ of each arm ~ N(m, spread²), m anything.

    With S the scatter matrix of K − 1 contrasts over n seeds and V their covariance for σ = 1 in the mean,
    p ∝ E[|V|^(−(n−1)/2) · tr(V⁻¹ S)^(−(n−1)(K−1)/2)].
    """
    arms, seeds = losses.shape
    contrasts = np.hstack([np.eye(arms - 1), -np.ones((arms - 1, 1))])
    seen = contrasts @ (losses - losses.mean(axis=1, keepdims=True))
    variances = np.exp(2 * spread * draw.standard_normal((draws, arms)))
    covariance = np.einsum("ik,nk,jk->nij", contrasts, variances, contrasts)
    logs = -(seeds - 1) / 2 * np.linalg.slogdet(covariance)[1]
    logs -= (seeds - 1) * (arms - 1) / 2 * np.log(np.einsum("nij,ji->n", np.linalg.inv(covariance), seen @ seen.T))
    return float(np.logaddexp.reduce(logs) - np.log(draws))


def gain(tables: list[Losses], spread: float) -> float:
    """ln p of a spread over that of no spread."""
    draw = np.random.default_rng(0)
    return sum(log_likelihood(of, spread, draw) - log_likelihood(of, 1e-6, draw) for of in tables)


@pytest.mark.slow
def test_the_spread_of_noise_is_found_where_it_is_known() -> None:
    draw, spreads = np.random.default_rng(1), (0.05, 0.2, 0.4, 0.8)
    for known in (0.05, 0.4):
        tables = []
        for _ in range(60):
            sd = np.exp(known * draw.standard_normal(4))[:, None]
            tables.append(draw.normal(0, 1, 5) + sd * draw.standard_normal((4, 5)))
        assert max(spreads, key=lambda spread: gain(tables, spread)) == pytest.approx(known, rel=0.6, abs=0.16)


def test_arms_of_most_recorded_studies_have_much_the_same_noise() -> None:
    """Within a factor of 1.3 or so; a spread of nothing is as likely within the accuracy of so few studies."""
    tables = [losses for name, losses in recorded() if name not in PLAINLY_UNLIKE]
    gains = {spread: gain(tables, spread) for spread in (0.1, 0.2, 0.25, 0.3, 0.4, 0.7)}
    best = max(gains, key=lambda spread: gains[spread])
    assert len(tables) >= 12
    assert 0.1 <= best <= 0.4
    assert gains[0.7] < gains[best] - 1.92
