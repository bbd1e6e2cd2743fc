"""What tuning says of the arms: its noise, what the choice of each may have cost, where its best rate may be. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.store.documents import StudyTrial, StudyTuning
from reports.statistics.interval import Interval
from reports.statistics.tuning_noise import (
    NOTHING,
    Ends,
    Noise,
    Penalty,
    Widened,
    curve_through,
    penalty,
    pooled,
    rate_noise,
    residual_noise,
)


@dataclass(frozen=True)
class Choice:
    """What an arm may have lost by its choice, and between which rates its best one lies, where a curve was drawn."""

    penalty: Penalty
    rate: Interval | None


def choices(tunings: Sequence[StudyTuning]) -> dict[str, Choice]:
    """By arm. The noise is that of all arms together; with one tuning seed it is not known, and no arm is in it."""
    found = [noise for each in tunings if (noise := residual_noise([_losses(t) for t in _about_the_best(each)]))]
    noise = pooled(found)
    return {} if noise is None else {each.arm: _choice(each, noise) for each in tunings if each.reliable}


def _losses(trial: StudyTrial) -> list[float]:
    return [math.inf if loss is None else loss for loss in trial.losses]


def _about_the_best(tuning: StudyTuning) -> Sequence[StudyTrial]:
    """The trials on the curve: far off, at rates that nearly diverge, losses are noisier."""
    if not tuning.curve:
        return tuning.reliable
    return [trial for trial, rate in zip(tuning.trials, tuning.rates, strict=True) if rate in tuning.curve]


def _choice(tuning: StudyTuning, noise: Noise) -> Choice:
    known = tuning.reliable
    means = [trial.loss if trial.loss is not None else math.inf for trial in known]
    of_mean = noise.of_mean(len(known[0].losses))
    if not tuning.curve:
        chosen = next(place for place, trial in enumerate(known) if trial.settings == tuning.chosen)
        return Choice(penalty(means, chosen, of_mean), None)
    rates = [rate for trial, rate in zip(tuning.trials, tuning.rates, strict=True) if trial in known]
    found = rate_noise(rates, means, tuning.curve, tuning.rate, of_mean)
    return Choice(found.penalty, found.rate)


def curve_of(tuning: StudyTuning) -> tuple[tuple[float, float], ...]:
    """The curve of which the rate taken is the minimum, in points; empty without one."""
    if not tuning.curve:
        return ()
    by_rate = dict(zip(tuning.rates, tuning.trials, strict=True))
    means = [math.nan if (loss := by_rate[rate].loss) is None else loss for rate in tuning.curve]
    return curve_through(tuning.curve, means)


def with_room(interval: Ends, pair: tuple[str, str], known: Mapping[str, Choice]) -> Widened | None:
    """An interval of the difference of two arms with room for what their tuning may have cost; None where that is not
    known."""
    if not any(name in known for name in pair):
        return None
    own, other = (known[name].penalty if name in known else NOTHING for name in pair)
    return Widened.of(interval, own, other)
