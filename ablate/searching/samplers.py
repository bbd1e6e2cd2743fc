"""Which settings are tried next, and which trials are ended early: optuna's samplers and pruners by name."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from ablate.store import AblateError
from ablate.study.search_spec import SearchSpec

STARTUP = 10
"""Trials drawn at random before a model of the space is believed."""


class MissingPackageError(AblateError):
    """A sampler or a storage needs a package that is not installed."""


def need(module: str, package: str, what: str) -> None:
    """Raises MissingPackageError with the way to get it."""
    if importlib.util.find_spec(module) is None:
        raise MissingPackageError(f"{what} needs the package {package}: pip install {package}")


def make_sampler(spec: SearchSpec, seed: int) -> BaseSampler:
    """The sampler of a search. Restarted searches pass another seed, or they would draw the same again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return _SAMPLERS[spec.sampler](spec, seed)


def _tpe(spec: SearchSpec, seed: int) -> BaseSampler:
    """Multivariate, over the groups of parameters that are asked together; running trials count as bad."""
    startup = min(STARTUP, max(1, spec.trials // 3))
    return optuna.samplers.TPESampler(
        seed=seed, multivariate=True, group=True, constant_liar=True, n_startup_trials=startup
    )


def _gp(spec: SearchSpec, seed: int) -> BaseSampler:
    startup = min(STARTUP, max(1, spec.trials // 3))
    return optuna.samplers.GPSampler(seed=seed, n_startup_trials=startup, warn_independent_sampling=False)


def _cmaes(_: SearchSpec, seed: int) -> BaseSampler:
    """Numbers alone: choices are drawn at random beside it."""
    need("cmaes", "cmaes", "search.sampler: cmaes")
    return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _nsga2(spec: SearchSpec, seed: int) -> BaseSampler:
    return optuna.samplers.NSGAIISampler(seed=seed, population_size=_population(spec))


def _nsga3(spec: SearchSpec, seed: int) -> BaseSampler:
    return optuna.samplers.NSGAIIISampler(seed=seed, population_size=_population(spec))


def _population(spec: SearchSpec) -> int:
    """Twelve generations or more, since six are hardly better than random trials; no fewer than eight to cross."""
    return max(8, min(50, spec.trials // 12))


def _random(_: SearchSpec, seed: int) -> BaseSampler:
    return optuna.samplers.RandomSampler(seed=seed)


_SAMPLERS: dict[str, Callable[[SearchSpec, int], BaseSampler]] = {
    "tpe": _tpe,
    "gp": _gp,
    "cmaes": _cmaes,
    "nsga2": _nsga2,
    "nsga3": _nsga3,
    "random": _random,
    "grid": _random,  # a grid hands out its own trials
}


def make_pruner(spec: SearchSpec) -> BasePruner:
    """Steps are the numbers of validations: runs of unlike length are compared at the same share."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match spec.pruner:
            case None:
                return optuna.pruners.NopPruner()
            case "asha":
                return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
            case "hyperband":
                return optuna.pruners.HyperbandPruner(min_resource=1, reduction_factor=2)
            case "median":
                return optuna.pruners.MedianPruner(n_startup_trials=5)
            case "wilcoxon":
                return optuna.pruners.WilcoxonPruner(p_threshold=0.1)


def ended(trial: FrozenTrial) -> bool:
    """Whether a trial has told something, rather than been refused before it cost anything."""
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED) or (
        trial.state == TrialState.FAIL and "error" in trial.user_attrs
    )
