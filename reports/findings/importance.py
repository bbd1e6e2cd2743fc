"""Which settings matter in a search: a test of each that says no when nothing does, and importances with an interval.

Does a setting matter? reports/findings/effects.py tests it beside all others. Holm's correction runs over all
settings of an objective.

How much? fANOVA (Hutter et al. 2014) as optuna computes it: shares of what is explained, which add up to one even
where all is noise. So they are shown with an interval from resampled trials, and only beside the test.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, json_to_distribution
from optuna.importance import FanovaImportanceEvaluator
from optuna.study import StudyDirection

from ablate.store.documents import TrialRecord
from reports.findings.effects import effect_ps
from reports.findings.searches import SearchSummary
from reports.statistics.estimates import holm

ALPHA = 0.05
FEWEST = 12
"""With fewer scored trials nothing is said about importance."""
RESAMPLES = 30
TREES = 16


@dataclass(frozen=True)
class Importance:
    """`p` is corrected. The share is None for a setting that not every trial has, or where it cannot be computed."""

    path: str
    p: float | None
    share: float | None
    low: float | None
    high: float | None

    @property
    def matters(self) -> bool:
        return self.p is not None and self.p < ALPHA


def importances(search: SearchSummary, place: int) -> tuple[Importance, ...]:
    """Importance of every setting for one objective, in descending order; empty with too few trials."""
    trials = search.scored
    if len(trials) < FEWEST:
        return ()
    values = np.array([_value(trial, place) for trial in trials])
    paths = list(search.document.space)
    raw = effect_ps(trials, values, paths)
    corrected = dict(zip(raw, holm(list(raw.values())), strict=True))
    shares = _shares(trials, values)
    found = [Importance(path, corrected.get(path), *shares.get(path, (None, None, None))) for path in paths]
    return tuple(sorted(found, key=lambda each: (-(each.share or 0), each.path)))


def _value(trial: TrialRecord, place: int) -> float:
    value = (trial.values or ())[place]
    if value is None:
        raise ValueError(f"trial {trial.number} has no score")
    return value


def _shares(trials: Sequence[TrialRecord], values: Any) -> dict[str, tuple[float, float, float]]:
    """fANOVA's share, with the middle 90 % of resamples, of the settings that every trial has."""
    rng = np.random.default_rng(0)
    whole = _fanova(trials, values)
    draws = []
    for _ in range(RESAMPLES):
        chosen = rng.integers(len(trials), size=len(trials))
        draws.append(_fanova([trials[n] for n in chosen], values[chosen]))
    found = {}
    for path, share in whole.items():
        low, high = np.quantile([draw.get(path, 0.0) for draw in draws], [0.05, 0.95])
        found[path] = (share, min(float(low), share), max(float(high), share))
    return found


def _fanova(trials: Sequence[TrialRecord], values: Any) -> dict[str, float]:
    if np.ptp(values) == 0:
        return {}
    study = in_memory(["minimize"])
    study.add_trials(frozen(trial, [float(value)]) for trial, value in zip(trials, values, strict=True))
    evaluator = FanovaImportanceEvaluator(n_trees=TREES, seed=0)
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def in_memory(directions: Sequence[str]) -> optuna.Study:
    """A study that optuna does not announce."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(directions=[StudyDirection[way.upper()] for way in directions])
    finally:
        optuna.logging.set_verbosity(level)


def frozen(trial: TrialRecord, values: Sequence[float]) -> optuna.trial.FrozenTrial:
    """The trial as optuna has it, so that its own analyses and figures can be used."""
    spread: dict[str, BaseDistribution] = {
        path: json_to_distribution(each.model_dump_json()) for path, each in trial.distributions.items()
    }
    params = dict(trial.params)
    for path, each in spread.items():
        if isinstance(each, CategoricalDistribution):
            spread[path] = CategoricalDistribution(tuple(map(_label, each.choices)))
            params[path] = _label(params[path])
    return optuna.trial.create_trial(values=list(values), params=params, distributions=spread)


def _label(choice: Any) -> Any:
    """A pattern of blocks in short: `local ×3, block`."""
    if not (isinstance(choice, str) and choice.startswith("[")):
        return choice
    runs = [(name, len(list(run))) for name, run in groupby(json.loads(choice))]
    return ", ".join(f"{name} ×{count}" if count > 1 else str(name) for name, count in runs)
