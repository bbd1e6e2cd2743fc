"""Which settings matter in a search.

An additive model of all trials (additive.py) gives each setting's share of the variance over the space with an
interval; test_search_honesty.py and test_importance.py measure the coverage of these intervals. Beside them stands
PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255) as optuna computes it, which measures what distinguishes the best
trials, and has no interval.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np
import optuna
import scipy  # loads its submodules on first use
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, json_to_distribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.study import StudyDirection

from ablate.wings.search.shown import additive
from ablate.wings.search.shown.optuna_log import silenced
from ablate.wings.search.shown.search_summary import SearchSummary
from store.documents import Choices, JsonScalar, TrialRecord

FEWEST = 12
"""Fewest scored trials for any statement about importance."""
LEVEL = 0.05
"""Probability that some setting without effect is said to matter, per objective."""
DETECTED, NEGLIGIBLE = 0.01, 0.05
"""Thresholds of the variance share: a setting surely above the first matters, one surely below the second
hardly does."""

Verdict = Literal["matters", "hardly matters", "cannot tell"]


@dataclass(frozen=True)
class Importance:
    """One setting: its `share` of the variance over the space, with a 90 % interval. `ped_anova` is None for a setting
    that some trials lack."""

    path: str
    verdict: Verdict
    share: float
    low: float
    high: float
    ped_anova: float | None

    @property
    def matters(self) -> bool:
        return self.verdict == "matters"


def importances(search: SearchSummary, place: int) -> tuple[Importance, ...]:
    """Importance of every setting for one objective, in descending order; empty with too few trials."""
    trials, paths = search.scored, list(search.document.space)
    name = list(search.objectives)[place]
    if len(trials) < FEWEST:
        return ()
    values = np.array([trial.scores[place] for trial in trials])
    ped = _ped_anova(trials, values, search.objectives[name])
    found = _estimated(trials, values, paths, ped)
    return tuple(sorted(found, key=lambda each: (-each.share, each.path)))


def _estimated(
    trials: Sequence[TrialRecord], values: NDArray[np.float64], paths: Sequence[str], ped: Mapping[str, float]
) -> list[Importance]:
    known = [path for path in paths if any(path in trial.params for trial in trials)]
    ranks = scipy.stats.rankdata(values)  # ranks, since bad learning rates would dominate the values themselves
    scores = scipy.special.ndtri((ranks - 0.5) / len(values))
    draws = additive.shares(scores, [_term(trials, path) for path in known])
    found = []
    for path, of in zip(known, draws.T, strict=True):
        low, high = np.quantile(of, [0.05, 0.95])
        surely = float(np.quantile(of, LEVEL / len(known)))
        verdict: Verdict = "cannot tell"
        if surely > DETECTED:
            verdict = "matters"
        elif high < NEGLIGIBLE:
            verdict = "hardly matters"
        found.append(Importance(path, verdict, float(of.mean()), float(low), float(high), ped.get(path)))
    return found


def _term(trials: Sequence[TrialRecord], path: str) -> additive.AdditiveTerm:
    """Features of a setting, on the scale on which it was sampled."""
    spread = next(trial.distributions[path] for trial in trials if path in trial.distributions).attributes
    if isinstance(spread, Choices):
        places = {str(value): place for place, value in enumerate(spread.choices)}
        levels = [places[str(trial.params[path])] if path in trial.params else -1 for trial in trials]
        return additive.choice(np.array(levels), len(places))
    numbers = [_on_scale(trial.params[path], spread.log) if path in trial.params else math.nan for trial in trials]
    return additive.number(np.array(numbers), _on_scale(spread.low, spread.log), _on_scale(spread.high, spread.log))


def _on_scale(number: JsonScalar, log: bool) -> float:
    plain = float(number or 0.0)
    return math.log(plain) if log else plain


def _ped_anova(trials: Sequence[TrialRecord], values: NDArray[np.float64], way: str) -> dict[str, float]:
    """PED-ANOVA shares of the settings that every trial has."""
    if np.ptp(values) == 0:
        return {}
    study = in_memory([way])
    study.add_trials(frozen(trial, [float(value)]) for trial, value in zip(trials, values, strict=True))
    with silenced(), warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return dict(optuna.importance.get_param_importances(study, evaluator=PedAnovaImportanceEvaluator()))


def in_memory(directions: Sequence[str]) -> optuna.Study:
    """An in-memory optuna study, created without log messages."""
    with silenced():
        return optuna.create_study(directions=[StudyDirection[way.upper()] for way in directions])


def frozen(trial: TrialRecord, values: Sequence[float]) -> optuna.trial.FrozenTrial:
    """The trial as an optuna `FrozenTrial`, for use in optuna's own analyses and figures."""
    spread: dict[str, BaseDistribution] = {
        path: json_to_distribution(each.model_dump_json()) for path, each in trial.distributions.items()
    }
    params = dict(trial.params)
    for path, each in spread.items():
        if isinstance(each, CategoricalDistribution):
            spread[path] = CategoricalDistribution(tuple(map(choice_label, each.choices)))
            params[path] = choice_label(params[path])
    return optuna.trial.create_trial(values=list(values), params=params, distributions=spread)


def choice_label(choice: Any) -> Any:
    """Short form of a pattern of blocks: `local ×3, block`."""
    if not (isinstance(choice, str) and choice.startswith("[")):
        return choice
    runs = [(name, len(list(run))) for name, run in groupby(json.loads(choice))]
    return ", ".join(f"{name} ×{count}" if count > 1 else str(name) for name, count in runs)
