"""What tuning says of the arms: its noise, what the choice of each may have cost, where its best rate may be. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from ablate.store.documents import StudyTrial, StudyTuning
from reports.statistics.erratic import steady_noise
from reports.statistics.interval import Interval
from reports.statistics.tuning_noise import (
    NOTHING,
    UNBOUNDED,
    Ends,
    Noise,
    Penalty,
    Widened,
    curve_through,
    penalty,
    rate_noise,
)


@dataclass(frozen=True)
class Choice:
    """What an arm may have lost by its choice, between which rates its best one lies, where a curve was drawn, and the
    trials on whose losses its seeds disagree far more than elsewhere."""

    penalty: Penalty
    rate: Interval | None
    erratic: tuple[StudyTrial, ...] = ()


def choices(tunings: Sequence[StudyTuning], losses: Mapping[str, float] | None = None) -> dict[str, Choice]:
    """By arm. losses: those that arms reach at what they chose; that is the most that they can have lost by it, for no
    loss is below zero.

    The noise is that of all arms together that train. With one tuning seed it is not known, nor what any arm may have
    lost; nor is it for an arm that trains with no setting.
    """
    unknown = {each.arm: Choice(UNBOUNDED, None) for each in tunings}
    tunings = [each for each in tunings if each.trains]
    places = [_about_the_best(each) for each in tunings]
    tables = [[_losses(each.reliable[place]) for place in some] for each, some in zip(tunings, places, strict=True)]
    found = steady_noise(tables)
    if found.noise is None:
        return unknown
    erratic = [{places[t][row]: sd for (t, row), sd in found.erratic.items() if t == n} for n in range(len(tables))]
    known = {
        each.arm: _choice(each, found.noise, own) for each, own in zip(tunings, erratic, strict=True) if each.reliable
    }
    most = losses or {}
    bounded = {
        each.arm: _bounded(known[each.arm], each, most.get(each.arm, math.inf)) for each in tunings if each.arm in known
    }
    return unknown | bounded


def _bounded(choice: Choice, tuning: StudyTuning, most: float) -> Choice:
    """At an edge nothing is known of what the arm may have lost."""
    return replace(choice, penalty=UNBOUNDED if tuning.edges else replace(choice.penalty, most=most))


def mean_losses(runs: pl.DataFrame) -> dict[str, float]:
    """Of the runs of each arm that finished."""
    return dict(runs.filter(status="finished").group_by("arm").agg(pl.col("loss").mean()).rows())


def _losses(trial: StudyTrial) -> list[float]:
    return [math.inf if loss is None else loss for loss in trial.losses]


def _rates(tuning: StudyTuning) -> list[float]:
    """Of the reliable trials."""
    return [rate for trial, rate in zip(tuning.trials, tuning.rates, strict=True) if trial in tuning.reliable]


def _about_the_best(tuning: StudyTuning) -> list[int]:
    """Places of the reliable trials on the curve: far off, at rates that nearly diverge, losses are noisier."""
    if not tuning.curve:
        return list(range(len(tuning.reliable)))
    return [place for place, rate in enumerate(_rates(tuning)) if rate in tuning.curve]


def _choice(tuning: StudyTuning, noise: Noise, erratic: Mapping[int, float]) -> Choice:
    """`erratic` are standard deviations by place among the reliable trials."""
    known = tuning.reliable
    means = [trial.loss if trial.loss is not None else math.inf for trial in known]
    of_mean = noise.of_mean(len(known[0].losses))
    times = [erratic[place] / noise.sd if place in erratic else 1.0 for place in range(len(known))]
    named = tuple(known[place] for place in erratic)
    if not tuning.curve:
        chosen = next(place for place, trial in enumerate(known) if trial.settings == tuning.chosen)
        return Choice(penalty(means, chosen, of_mean, times), None, named)
    found = rate_noise(_rates(tuning), means, tuning.curve, tuning.rate, of_mean, times)
    return Choice(found.penalty, found.rate, named)


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
