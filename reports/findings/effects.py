"""Does a setting matter in a search? A test of each beside all the others.

A sampler that learns moves every setting towards good scores at once. A setting without any effect is then associated
with the scores as closely as one that has it, so comparing the scores at its values would tell a story. Here a linear
model of the ranks of the scores (Conover and Iman 1981) has all settings in it, and an F-test compares it with the
model that lacks one. A choice has a level for each value, a number a slope and a curvature on its own scale; settings
that only matter together with another may be missed. tests/ablate/test_search_honesty.py measures how often it errs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f, rankdata

from ablate.store.documents import Choices, JsonScalar, TrialRecord

FEWEST_LEFT = 5
"""Residual degrees of freedom below which nothing is said."""
LEVELS = 3
"""A number with so few values is treated as a choice."""

Floats = NDArray[np.float64]


def effect_ps(trials: Sequence[TrialRecord], values: Floats, paths: Sequence[str]) -> dict[str, float]:
    """Uncorrected p by path; without settings that cannot be told from the others, and empty with too few trials."""
    columns = {path: _columns(trials, path) for path in paths}
    ranks = rankdata(values)
    unexplained, left = _fit(ranks, list(columns.values()))
    if left < FEWEST_LEFT:
        return {}
    least = 1e-9 * len(ranks) * float(np.var(ranks))
    found = {}
    for path in paths:
        more, left_without = _fit(ranks, [columns[other] for other in paths if other != path])
        freedom = left_without - left
        if freedom and unexplained > least:
            found[path] = float(f.sf((more - unexplained) / freedom / (unexplained / left), freedom, left))
        elif freedom:  # the scores follow exactly from the settings
            found[path] = 0.0 if more > least else 1.0
    return found


def _fit(ranks: Floats, columns: Sequence[Floats]) -> tuple[float, int]:
    """Sum of squares that a linear model leaves unexplained, and its degrees of freedom."""
    design = np.hstack([np.ones((len(ranks), 1)), *columns])
    weights, _, rank, _ = np.linalg.lstsq(design, ranks, rcond=None)
    return float(np.sum((ranks - design @ weights) ** 2)), len(ranks) - int(rank)


def _columns(trials: Sequence[TrialRecord], path: str) -> Floats:
    """(trials, degrees of freedom). Trials without the setting are a level of their own."""
    has = np.array([path in trial.params for trial in trials])
    known = [trial.params[path] for trial in trials if path in trial.params]
    spread = next((trial.distributions[path] for trial in trials if path in trial.distributions), None)
    if spread is None:
        return np.empty((len(trials), 0))
    levels, drawn_from = sorted(set(known), key=str), spread.attributes
    if isinstance(drawn_from, Choices) or len(levels) <= LEVELS:
        own = np.array([[value == level for level in levels[1:]] for value in known], dtype=float)
    else:
        own = _curve(known, drawn_from.log)
    columns = np.zeros((len(trials), own.shape[1] + 1))
    columns[has, :-1] = own
    columns[~has, -1] = 1
    return columns


def _curve(known: Sequence[JsonScalar], log: bool) -> Floats:
    """Slope and curvature of a number, on a logarithmic scale where it was drawn on one."""
    plain = np.array(known, dtype=float)
    numbers = np.log(plain) if log else plain
    scaled = (numbers - numbers.mean()) / numbers.std()
    return np.column_stack([scaled, scaled**2])
