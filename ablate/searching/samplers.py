"""Which settings are tried next, and which trials are ended early: optuna's samplers and pruners by name."""

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

from ablate.store import AblateError
from ablate.store.documents import JsonObject
from ablate.study.search_methods import PRUNERS, SAMPLERS
from ablate.study.search_space import Params, SearchSpace, is_listed
from ablate.study.search_spec import SearchSpec

STARTUP = 10
"""Trials drawn at random before a model of the space is believed."""


class MissingPackageError(AblateError):
    """A sampler or a storage needs a package that is not installed."""


def need(module: str, package: str, what: str) -> None:
    """Raises MissingPackageError with the way to get it."""
    if importlib.util.find_spec(module) is None:
        raise MissingPackageError(f"{what} needs the package {package}: pip install {package}")


class Repeatable(BaseSampler):
    """A sampler whose random state follows from the search's seed and the trial's number.

    So a search with a seed can be repeated, an interrupted one goes on as if it had not been, and commands that search
    at once draw different settings.
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
    """The kind of sampler; `auto` is a grid that fits into the trials, else TPE, which knows parts and constraints."""
    if spec.sampler.kind != "auto":
        return spec.sampler.kind
    room = spec.trials - spec.repeats
    has_steps = all(is_listed(axis) for axis in space.axes.values())
    return "grid" if has_steps and len(list(islice(space.all(), room + 1))) <= room else "tpe"


def make_sampler(spec: SearchSpec, kind: str) -> BaseSampler:
    """The sampler of a search. kind: what `spec.sampler` says, or what stands for `auto`."""
    if kind == "cmaes":
        need("cmaes", "cmaes", "search.sampler: cmaes")
    cls = getattr(optuna.samplers, SAMPLERS.get(kind, SAMPLERS["random"]))  # a grid hands out its own trials
    given = {**_defaults(spec, kind), **spec.sampler.settings}

    def make(seed: int) -> BaseSampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            found: BaseSampler = cls(seed=seed, **given)
        return found

    return Repeatable(make, spec.seed)


def _defaults(spec: SearchSpec, kind: str) -> JsonObject:
    """Arguments that suit searches of so few trials, which a study may replace.

    TPE is multivariate, over groups of parameters that are asked together, and running trials count as bad. Generations
    are twelve or more, since six are hardly better than random trials, of no fewer than eight to cross.
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
        validations: of a run. Steps are their numbers: runs of unlike length are compared at the same share.
        wait: number of the first validation by which a trial may be ended.
    """
    if spec.pruner is None:
        return optuna.pruners.NopPruner()
    wait = max(1, wait)
    defaults: dict[str, JsonObject] = {
        "asha": {"min_resource": wait, "reduction_factor": 2},
        "hyperband": {"min_resource": wait, "max_resource": max(validations, wait + 1), "reduction_factor": 2},
        "median": {"n_startup_trials": 5, "n_warmup_steps": wait},
        "wilcoxon": {"p_threshold": 0.1},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        cls = getattr(optuna.pruners, PRUNERS[spec.pruner.kind])
        found: BasePruner = cls(**{**defaults[spec.pruner.kind], **spec.pruner.settings})
    return found


def ended(trial: FrozenTrial) -> bool:
    """Whether a trial has told something, rather than been refused before it cost anything."""
    return "illegal" not in trial.user_attrs and (
        trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        or (trial.state == TrialState.FAIL and "error" in trial.user_attrs)
    )
