"""Standard errors of metrics over items, and of likelihood metrics over whole texts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from lm_eval.api.metrics import acc_all, acc_all_stderr, mean, mean_stderr
from numpy.typing import NDArray

Array = NDArray[np.float64]

WEIGHTED_METRICS: dict[str, Callable[[Array], Array]] = {
    "bits_per_byte": lambda mean: -mean / np.log(2),
    "byte_perplexity": lambda mean: np.exp(-mean),
    "word_perplexity": lambda mean: np.exp(-mean),
}
"""Metric → what it makes of the mean log-likelihood per unit, Σ log p ÷ Σ units."""


def jackknife_stderr(metric: str, items: Sequence[tuple[float, int]], clusters: Sequence[Hashable]) -> float | None:
    """Delete-one-cluster jackknife: √((g − 1)/g · Σ (θ₍ᵢ₎ − θ̄)²), θ₍ᵢ₎ being the metric without cluster i.

    items: (log-likelihood, units) per text; clusters: which document each text is from, since texts from one document
    are not independent. None with fewer than two clusters. Efron & Tibshirani 1993, chapter 11.
    """
    names = list(dict.fromkeys(clusters))
    if len(names) < 2:
        return None
    index = np.array([names.index(cluster) for cluster in clusters])
    log_p, units = np.asarray(items, dtype=np.float64).T
    log_p, units = np.bincount(index, log_p), np.bincount(index, units)
    left_out = (log_p.sum() - log_p) / (units.sum() - units)
    with np.errstate(over="ignore", invalid="ignore"):
        theta = WEIGHTED_METRICS[metric](left_out)
        spread = float(np.square(theta - theta.mean()).sum())
    return float(np.sqrt((len(names) - 1) / len(names) * spread))


RESAMPLES = 200
CLOSED_FORM = {mean: mean_stderr, acc_all: acc_all_stderr}


def stderr_over_items(aggregate: Callable[[list[Any]], Any], values: Sequence[Any]) -> float:
    """Standard error of an aggregate of the items' values: s/√n of a mean, else a bootstrap over items.

    Efron & Tibshirani 1993, chapter 6: 200 resamples are enough for a standard error.
    """
    if aggregate in CLOSED_FORM:
        return float(CLOSED_FORM[aggregate](values))
    draw = np.random.default_rng(0)
    places = draw.integers(len(values), size=(RESAMPLES, len(values)))
    return float(np.std([aggregate([values[i] for i in row]) for row in places.tolist()], ddof=1))
