"""Standings of a search's settings on fresh seeds: which are indistinguishable from the best, and which left the front.

A difference from the best is tested at 5 % over all comparisons (Bonferroni), by the standard deviation between seeds
of one setting, pooled over settings: a single setting has too few seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special  # scipy.stats takes seconds to load

from ablate.wings.search.documents import SearchDocument
from ablate.wings.search.shown.selection_bias import FreshScore
from reports.judge.statistics.estimates import Floats

LEVEL = 0.05


@dataclass(frozen=True)
class SearchStanding:
    """Settings, identified by their first trial, with scores on seeds that did not select them."""

    trial: int
    seeds: int
    means: Mapping[str, float]
    """Means of the scores on fresh seeds, by objective."""
    half_widths: Mapping[str, float | None]
    """Half widths of the means' 95 % intervals; None with too few seeds to estimate the noise."""
    is_best: bool
    """With one objective: whether it is not surely worse than the leader. With several: whether no other dominates its
    means."""


def standings(document: SearchDocument, fresh: Iterable[FreshScore]) -> Iterator[SearchStanding]:
    """Standings, the best first by the first objective.

    They share their seeds, and so differ in nothing else.
    """
    scores = _fresh(document, fresh)
    if not scores:
        return
    signs = np.array([1.0 if way == "minimize" else -1.0 for way in document.objectives.values()])
    # noise between seeds of one setting, pooled: (objectives,)
    freedom = sum(len(of) - 1 for of in scores.values())
    squares = sum(((of - of.mean(axis=0)) ** 2).sum(axis=0) for of in scores.values())
    sd = np.sqrt(squares / freedom) if freedom else None
    means = {trial: of.mean(axis=0) for trial, of in scores.items()}
    order = sorted(means, key=lambda trial: float(signs[0] * means[trial][0]))
    for trial in order:
        if len(signs) == 1:
            best = sd is None or not _is_worse(scores, trial, order[0], sd[0], freedom, signs[0])
        else:
            own = signs * means[trial]
            # weakly better everywhere and strictly better somewhere: dominated
            best = not any((signs * of <= own).all() and (signs * of < own).any() for of in means.values())
        halves = None if sd is None else special.stdtrit(freedom, 1 - LEVEL / 2) * sd / math.sqrt(len(scores[trial]))
        yield SearchStanding(
            trial,
            len(scores[trial]),
            dict(zip(document.objectives, map(float, means[trial]), strict=True)),
            {name: None if halves is None else float(halves[i]) for i, name in enumerate(document.objectives)},
            best,
        )


def _is_worse(scores: Mapping[int, Floats], trial: int, leader: int, sd: float, freedom: int, sign: float) -> bool:
    """Whether a setting is worse than the leader beyond the noise."""
    if trial == leader:
        return False
    ours, best = scores[trial][:, 0], scores[leader][:, 0]
    error = sd * math.sqrt(1 / len(ours) + 1 / len(best))
    return bool(sign * (ours.mean() - best.mean()) > special.stdtrit(freedom, 1 - LEVEL / (len(scores) - 1)) * error)


def _fresh(document: SearchDocument, fresh: Iterable[FreshScore]) -> dict[int, Floats]:
    """(seeds, objectives) of each trial that has all scores for every fresh seed; likewise of the base, if it is a
    trial."""
    base, numbers = document.base, dict[str, int]()
    for trial in reversed(document.trials):  # reversed: the first of equal trials wins
        numbers[f"trial_{trial.number}"] = trial.number
        if base.runs and trial.runs == base.runs:
            numbers[base.name] = trial.number
    by_arm: dict[int, dict[str, tuple[float, ...]]] = {}
    for each in fresh:
        if each.arm in numbers and each.fresh is not None:
            by_arm.setdefault(numbers[each.arm], {})[each.objective] = each.fresh.values
    whole = {trial: of for trial, of in by_arm.items() if set(of) == set(document.objectives)}
    return {trial: np.array([of[name] for name in document.objectives]).T for trial, of in whole.items()}
