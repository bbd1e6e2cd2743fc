"""Tuning trials: settings, losses per seed, and the choice of the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from store.documents.tuning import RATE

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
