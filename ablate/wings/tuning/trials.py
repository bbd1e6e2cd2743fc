"""Tuning trials: settings, losses per seed, and the choice of the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ablate.study.space import Categorical, LogUniform, Space
from ablate.study.tune_spec import TuneSpec
from store.documents.tuning import RATE

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution


Settings = dict[str, Any]
"""Values by dotted path."""
Legal = Callable[[Settings], bool]
Losses = Sequence[float]
"""Losses of one setting, in the order of the tuning seeds; infinite if a seed diverged."""
Stalls = Callable[[float], bool]
"""Whether a run with this loss has stalled: learned little more than token frequencies."""
Batches = Generator[list[Settings], Sequence[Losses], "Tuned"]

NUDGE = 0.01
"""Nothing lies beyond an edge if a value this share of a step further out is illegal."""


@dataclass(frozen=True)
class Trial:
    """Settings, and the validation loss of every tuning seed; infinite if it diverged."""

    settings: Settings
    losses: tuple[float, ...]
    stalled: int = 0
    """Number of seeds that stalled."""

    @property
    def loss(self) -> float:
        """Mean over the seeds."""
        return math.fsum(self.losses) / len(self.losses)

    @property
    def trains(self) -> bool:
        """Whether a seed neither diverged nor stalled."""
        return self.stalled < len(self.losses) and any(map(math.isfinite, self.losses))


@dataclass(frozen=True)
class Tuned:
    """Outcome of tuning. chosen: the settings taken. edges: paths whose best value may lie beyond those tried. curve:
    learning rates to which a curve was fitted; the chosen rate has the lowest expected loss on it. reason: why a
    learning rate that was tuned alone has no curve."""

    trials: tuple[Trial, ...]
    chosen: Settings
    edges: tuple[str, ...]
    curve: tuple[float, ...] = ()
    reason: str | None = None

    @property
    def least(self) -> float:
        """Mean loss of the best trial; infinite if every trial has a seed that diverged."""
        return best(self.trials).loss

    @property
    def fails_above(self) -> bool:
        """Whether a seed diverged, or more seeds stalled, at the next rate above the best. For a rate tuned alone."""
        least = best(self.trials)
        above = [trial for trial in self.trials if trial.settings[RATE] > least.settings[RATE]]
        following = min(above, key=lambda trial: trial.settings[RATE], default=least)
        return math.isinf(following.loss) or following.stalled > least.stalled


def best(trials: Sequence[Trial]) -> Trial:
    """The trial of lowest loss; of equal ones the first. A trial with a stalled seed wins only if every trial has one
    or diverged: settings that train by luck are unreliable, and a mean over both outcomes is meaningless."""
    return min(trials, key=lambda trial: (math.isinf(trial.loss), trial.stalled > 0, trial.loss))


def any_trains(trials: Sequence[Trial]) -> bool:
    """Whether any seed of any trial trained."""
    return any(trial.trains for trial in trials)


def trials_of(batch: Sequence[Settings], losses: Sequence[Losses], stalls: Stalls) -> list[Trial]:
    """The trials of a batch."""
    return [Trial(settings, tuple(each), sum(map(stalls, each))) for settings, each in zip(batch, losses, strict=True)]


# Tuning over ranges with an Optuna sampler.

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
