"""Tuning over ranges with an Optuna sampler."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ablate.planning.trials import NUDGE, Batches, Legal, Settings, Stalls, Trial, Tuned, best, trials_of
from ablate.study.space import Categorical, LogUniform, Space
from ablate.study.tune_spec import TuneSpec

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

NEAR_EDGE = 0.05
"""A best value is at the edge of a range if its distance from the end is at most this share of the range's length."""
MOST_ILLEGAL = 1000
"""Number of consecutive illegal draws after which the space counts as having no legal setting."""


class IllegalSpaceError(ValueError):
    """A space in which no legal settings were found."""


def sampled(spec: TuneSpec, among: Space, legal: Legal, stalls: Stalls) -> Batches:
    """Propose settings from ranges, `spec.at_once` a batch; see `propose`. Raises IllegalSpaceError."""
    import optuna  # noqa: PLC0415 (takes long, and few studies tune by it)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler: optuna.samplers.BaseSampler = optuna.samplers.RandomSampler(seed=0)
    if spec.sampler != "random":
        sampler = optuna.samplers.TPESampler(seed=0, constant_liar=True, n_startup_trials=2 * spec.at_once)
    study = optuna.create_study(sampler=sampler)
    space = {path: axis.distribution for path, axis in among.items()}
    trials: list[Trial] = []
    while len(trials) < spec.count:
        asked = [_legal_trial(study, space, legal) for _ in range(min(spec.at_once, spec.count - len(trials)))]
        losses = yield [dict(trial.params) for trial in asked]
        tried = trials_of([dict(trial.params) for trial in asked], losses, stalls)
        for trial, each in zip(asked, tried, strict=True):
            study.tell(trial, each.loss)
        trials += tried
    return Tuned(tuple(trials), best(trials).settings, _near_ends(among, best(trials).settings, legal))


def _legal_trial(study: optuna.Study, space: dict[str, BaseDistribution], legal: Legal) -> optuna.Trial:
    """The next trial with which the arm can be built; illegal ones are reported to the sampler as failed."""
    import optuna  # noqa: PLC0415 (takes long, and few studies tune by it)

    for _ in range(MOST_ILLEGAL):
        trial = study.ask(space)
        if legal(dict(trial.params)):
            return trial
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    raise IllegalSpaceError(f"none of {MOST_ILLEGAL} settings drawn from the space can be built")


def _near_ends(space: Space, chosen: Settings, legal: Legal) -> tuple[str, ...]:
    """Paths whose best value is near an end of their range, if values beyond that end are legal."""
    found = []
    for path, axis in space.items():
        if isinstance(axis, Categorical):
            continue
        is_log = isinstance(axis, LogUniform)
        scale: Callable[[float], float] = math.log if is_log else float
        low, high = (scale(end) for end in axis.ends)
        place = (scale(chosen[path]) - low) / (high - low)
        if NEAR_EDGE < place < 1 - NEAR_EDGE:
            continue
        end, outwards = (axis.ends[0], -1) if place <= NEAR_EDGE else (axis.ends[1], 1)
        step = outwards * (NUDGE * end if is_log else 1 if isinstance(chosen[path], int) else NUDGE * (high - low))
        if legal({**chosen, path: end + step}):
            found.append(path)
    return tuple(found)
