"""Trials of tuning: settings, the losses of their seeds, and which of them is best."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.store.documents.tuning import RATE

Settings = dict[str, Any]
"""Values by dotted path."""
Legal = Callable[[Settings], bool]
Losses = Sequence[float]
"""Losses of one setting, in the order of the tuning seeds; infinite if a seed diverged."""
Stalls = Callable[[float], bool]
"""Whether a run with this loss learned little more than how frequent tokens are."""
Batches = Generator[list[Settings], Sequence[Losses], "Tuned"]

NUDGE = 0.01
"""Where a value so small a share of a step further is illegal, nothing lies beyond an edge."""


@dataclass(frozen=True)
class Trial:
    """Settings and the validation loss of every tuning seed; infinite where it diverged."""

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
    """Outcome of tuning: every trial, the settings taken, and the paths whose best value may lie beyond those tried.
    `curve` are the learning rates that a curve was fitted to, on which the rate taken has the least expected loss;
    where there is none and a rate was tuned alone, `reason` says why."""

    trials: tuple[Trial, ...]
    chosen: Settings
    edges: tuple[str, ...]
    curve: tuple[float, ...] = ()
    reason: str | None = None

    @property
    def least(self) -> float:
        """The mean loss of the best trial; infinite where every trial has a seed that diverged."""
        return best(self.trials).loss

    @property
    def fails_above(self) -> bool:
        """Whether a seed diverged or stalled at the next rate above the best, where the rate was tuned alone."""
        least = best(self.trials)
        above = [trial for trial in self.trials if trial.settings[RATE] > least.settings[RATE]]
        following = min(above, key=lambda trial: trial.settings[RATE], default=least)
        return math.isinf(following.loss) or following.stalled > least.stalled


def best(trials: Sequence[Trial]) -> Trial:
    """The lowest loss; of equal ones the first. One in which a seed stalled wins only where each trial has such a seed:
    settings that train by luck are not to be relied on, and a mean over both outcomes means nothing."""
    return min(trials, key=lambda trial: (math.isinf(trial.loss), trial.stalled > 0, trial.loss))


def any_trains(trials: Sequence[Trial]) -> bool:
    """Whether a seed of any of them trained."""
    return any(trial.trains for trial in trials)


def trials_of(batch: Sequence[Settings], losses: Sequence[Losses], stalls: Stalls) -> list[Trial]:
    """The trials of a batch."""
    return [Trial(settings, tuple(each), sum(map(stalls, each))) for settings, each in zip(batch, losses, strict=True)]
