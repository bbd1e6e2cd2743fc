"""Samplers, which propose settings, and pruners, which end trials early: optuna's, by name."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from ablate.wings.search.search_space import Params, SearchSpace, is_listed
from ablate.wings.search.search_spec import PRUNERS, SAMPLERS, SearchSpec
from store import AblateError
from store.documents import JsonObject

STARTUP = 10
"""Maximum number of random trials before a model-based sampler takes over."""


class MissingPackageError(AblateError):
    """A sampler or a storage needs a package that is not installed."""


def need(module: str, package: str, what: str) -> None:
    """Raise MissingPackageError, with the command that installs the package, if a module is missing."""
    if importlib.util.find_spec(module) is None:
        raise MissingPackageError(f"{what} needs the package {package}: pip install {package}")


class Repeatable(BaseSampler):
    """A sampler whose random state is derived from the search's seed and the trial's number.

    A search with a seed is therefore reproducible, an interrupted one resumes unchanged, and concurrent commands draw
    different settings.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        self._make, self._seed = make, seed
        self._sampler = make(seed)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self._sampler = self._make(int(np.random.SeedSequence([self._seed, trial.number]).generate_state(1)[0]))
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Params:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._sampler.after_trial(study, trial, state, values)


def chosen_sampler(spec: SearchSpec, space: SearchSpace) -> str:
    """The kind of sampler. `auto` is a grid if one fits into the trials, else TPE, which handles conditional settings
    and constraints."""
    if spec.sampler.kind != "auto":
        return spec.sampler.kind
    has_steps = all(is_listed(axis) for axis in space.axes.values())
    return "grid" if has_steps and len(list(islice(space.all(), spec.trials + 1))) <= spec.trials else "tpe"


def make_sampler(spec: SearchSpec, kind: str) -> BaseSampler:
    """The sampler of a search. kind: that of `spec.sampler`, with `auto` resolved."""
    if kind == "cmaes":
        need("cmaes", "cmaes", "search.sampler: cmaes")
    cls = getattr(optuna.samplers, SAMPLERS.get(kind, SAMPLERS["random"]))  # a grid enqueues its trials itself
    given = {**_defaults(spec, kind), **spec.sampler.settings}

    def make(seed: int) -> BaseSampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            found: BaseSampler = cls(seed=seed, **given)
        return found

    return Repeatable(make, spec.seed)


def _defaults(spec: SearchSpec, kind: str) -> JsonObject:
    """Default arguments, chosen for searches of few trials; a study may override them.

    TPE is multivariate, over groups of parameters that occur together, and running trials count as bad. Evolutionary
    searches have twelve generations or more, since six are hardly better than random trials, and populations of at
    least eight for crossover.
    """
    startup = min(STARTUP, max(1, spec.trials // 3))
    match kind:
        case "tpe":
            return {"multivariate": True, "group": True, "constant_liar": True, "n_startup_trials": startup}
        case "gp":
            return {"n_startup_trials": startup, "warn_independent_sampling": False}
        case "cmaes":
            return {"warn_independent_sampling": False}
        case "nsga2" | "nsga3":
            return {"population_size": max(8, min(50, spec.trials // 12))}
    return {}


def make_pruner(spec: SearchSpec, validations: int = 1, wait: int = 1) -> BasePruner:
    """The pruner of a search.

    Args:
        validations: number of validations of a run. A pruner's steps are their indices, so runs of different lengths
            are compared at the same share.
        wait: number of the first validation after which a trial may be ended.
    """
    pruning = spec.pruning(validations)
    if pruning is None:
        return optuna.pruners.NopPruner()
    wait = max(1, wait)
    defaults: dict[str, JsonObject] = {
        "asha": {"min_resource": wait, "reduction_factor": 3},
        "hyperband": {"min_resource": wait, "max_resource": max(validations, wait + 1), "reduction_factor": 2},
        "median": {"n_startup_trials": 5, "n_warmup_steps": wait},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        cls = getattr(optuna.pruners, PRUNERS[pruning.kind])
        found: BasePruner = cls(**{**defaults[pruning.kind], **pruning.settings})
    return found


def ended(trial: FrozenTrial) -> bool:
    """Whether a trial has ended with a score, by pruning or by failure; False for proposals refused as illegal."""
    return "illegal" not in trial.user_attrs and (
        trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        or (trial.state == TrialState.FAIL and "error" in trial.user_attrs)
    )
