"""The noise of a study, from judging and tuning runs together, and what each arm's tuning leaves open. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from scipy import special  # scipy.stats takes seconds to load

from ablate.noise.curve import RateCurve
from ablate.noise.difference import Difference, seed_difference
from ablate.noise.fit import SeedLosses
from ablate.noise.penalty import NOTHING, UNBOUNDED, Penalty, choice_penalty
from ablate.noise.scatter import Noise, Odd, Scatter, scatter
from ablate.store.documents import StudyTrial, StudyTuning
from ablate.store.documents.tuning import RATE
from reports.statistics.interval import Interval

NO_SCATTER = Scatter(None)
UNEVEN, DOUBT = 1.5, 0.1
"""Ratio of two arms' numbers of seeds above which their noise is pooled only if a test at this level finds it alike."""


@dataclass(frozen=True)
class TunedChoice:
    """Penalty of the settings that an arm took; of a rate tuned alone, the interval of the best one and the
    curve (points of rate and loss) that says so."""

    penalty: Penalty
    rate: Interval | None = None
    curve: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class StudyNoise:
    """One noise model for all runs of a study (`ablate.noise.scatter`), by arm what tuning leaves open, the mean losses
    that arms reach, and the scatter of runs about their arm alone, for arms that are not paired by seed."""

    scatter: Scatter
    tunings: tuple[StudyTuning, ...] = ()
    losses: Mapping[str, float] | None = None
    apart: Scatter = NO_SCATTER

    @property
    def run(self) -> Noise | None:
        """Noise of one run."""
        return self.scatter.noise

    def of_pair(self, *arms: str) -> Noise | None:
        """Noise of one run of either arm; None where one is noisier than the rest, where both move together so that
        their differences are quieter, or nothing is known."""
        apart = any(arm in self.scatter.noisier for arm in arms) or frozenset(arms) in self.scatter.quiet
        return None if apart else self.run

    def difference(self, pair: tuple[str, str], values: Sequence[float], shared: float = 0.0) -> Difference | None:
        """First arm − second, from paired differences by seed, with all its noise; None where these tell nothing.

        shared: the standard error of what all seeds have in common.
        """
        found = seed_difference(np.asarray(values), self.of_pair(*pair))
        if found is None:
            return None
        own, other = map(self.penalty, pair)
        return replace(found, shared=shared, own=own, other=other)

    def unpaired(self, pair: tuple[str, str], own: Sequence[float], others: Sequence[float]) -> Difference | None:
        """The difference of two means whose seeds have nothing in common; None with fewer than two in either.

        A pair with a noisier arm, or of a study whose runs are all paired, has Welch's error and degrees of freedom;
        so has one of unequal numbers of seeds where the smaller has the larger scatter, which a pooled one understates.
        """
        if min(len(own), len(others)) < 2:
            return None
        first, second = (float(np.var(losses, ddof=1)) / len(losses) for losses in (own, others))
        run = None if any(arm in self.apart.noisier for arm in pair) else self.apart.noise
        if run is None or _is_noisier(min(own, others, key=len), max(own, others, key=len), run):
            error = math.sqrt(first + second)
            parts = first**2 / (len(own) - 1) + second**2 / (len(others) - 1)
            freedom = max(1, math.floor(error**4 / parts)) if parts else 1
        else:
            error, freedom = run.sd * math.sqrt(1 / len(own) + 1 / len(others)), run.freedom
        penalties = map(self.penalty, pair)
        difference = float(np.mean(own) - np.mean(others))
        return Difference(difference, error, freedom, 0.0, *penalties) if error else None

    def of_tuning(self, arm: str) -> Noise | None:
        """Noise of one tuning run of an arm: not less than where it is noisier than the rest."""
        rows = self.scatter.noisier.items()
        own = [sd for row, sd in rows if row == arm or (isinstance(row, tuple) and row[0] == arm)]
        return self.run and replace(self.run, sd=max([self.run.sd, *own]))

    def penalty(self, arm: str) -> Penalty:
        """Distribution of what an arm may have lost by its choice of settings."""
        return self.choices[arm].penalty if arm in self.choices else NOTHING

    @property
    def odd(self) -> Mapping[str, Odd]:
        """Judging runs that ended far from the other seeds of their arm, by arm."""
        return {str(row): odd for row, odd in self.scatter.odd.items() if isinstance(row, str)}

    @property
    def noisier(self) -> tuple[str, ...]:
        """Arms whose judging runs are noisier than the rest."""
        return tuple(row for row in self.scatter.noisier if isinstance(row, str))

    @property
    def quiet(self) -> tuple[tuple[str, str], ...]:
        """Pairs of arms that differ plainly less from seed to seed than from the others."""
        pairs = self.scatter.alike.items()
        found = ((str(other), str(row)) for row, other in pairs if frozenset({row, other}) in self.scatter.quiet)
        return tuple(found)

    @cached_property
    def choices(self) -> Mapping[str, TunedChoice]:
        """Choices of the arms that tuned."""
        most = self.losses or {}
        return {
            each.arm: _choice(each, self.of_tuning(each.arm), most.get(each.arm, math.inf)) for each in self.tunings
        }


def _is_noisier(fewer: Sequence[float], more: Sequence[float], run: Noise) -> bool:
    """Whether much fewer losses scatter more than the pooled noise leads one to expect, by a test at `DOUBT`."""
    ratio = float(np.var(fewer, ddof=1)) / run.sd**2
    uneven = len(more) > UNEVEN * len(fewer)
    return uneven and float(special.fdtrc(len(fewer) - 1, run.freedom, ratio)) < DOUBT


def study_noise(tunings: Sequence[StudyTuning], runs: pl.DataFrame) -> StudyNoise:
    """The noise of the finished judging runs and of tuning runs of full length at the settings that arms took."""
    finished = runs.filter(status="finished").drop_nulls("loss") if runs.height else runs
    judging: dict[str, dict[int, float]] = {}
    for arm, seed, loss in finished.select("arm", "seed", "loss").iter_rows() if finished.height else ():
        judging.setdefault(arm, {})[seed] = loss
    means = {arm: math.fsum(of.values()) / len(of) for arm, of in judging.items()}
    return StudyNoise(scatter(judging, *tuning_tables(tunings)), tuple(tunings), means)


def tuning_tables(tunings: Iterable[StudyTuning]) -> list[SeedLosses]:
    """A row for each arm: (arm, place of the trial of the settings taken).

    A run at another rate begins with the same weights and reads the same batches as the one at the rate taken: together
    they would count as two and tell little more than one. Shorter runs are noisier.
    """
    table: dict[tuple[str, int], dict[int, float]] = {}
    for each in tunings:
        reliable = [(place, trial) for place, trial in enumerate(each.trials) if trial in each.reliable]
        if reliable and each.fraction == 1 and each.trains:
            # the settings taken, or the best where these were not tried
            _, _, place = min((trial.settings != each.chosen, trial.loss or 0.0, place) for place, trial in reliable)
            losses = each.trials[place].losses
            table[each.arm, place] = dict(enumerate(loss for loss in losses if loss is not None))
    return [table] if table else []


def _choice(tuning: StudyTuning, noise: Noise | None, most: float) -> TunedChoice:
    """At an edge, and where no seed trained, nothing bounds what the arm may have lost."""
    if not tuning.trains or tuning.edges or noise is None or not tuning.reliable:
        return TunedChoice(UNBOUNDED)
    if list(tuning.chosen) != [RATE]:
        known = tuning.reliable
        chosen = next((place for place, trial in enumerate(known) if trial.settings == tuning.chosen), None)
        if chosen is None:
            return TunedChoice(UNBOUNDED.at_most(most))
        means = [trial.loss for trial in known if trial.loss is not None]
        return TunedChoice(choice_penalty(means, chosen, noise.of_mean(len(known[0].losses))).at_most(most))
    curve = RateCurve.fit(_rate_losses(tuning), noise)
    if curve is None:
        return TunedChoice(UNBOUNDED)
    low, high = curve.bounds
    return TunedChoice(curve.penalty(tuning.rate).at_most(most), Interval(tuning.rate, low, high), curve.points())


def _rate_losses(tuning: StudyTuning) -> dict[float, list[float]]:
    """Losses by rate; one at which a seed failed is infinite."""

    def losses(trial: StudyTrial) -> list[float]:
        known = [loss for loss in trial.losses if loss is not None]
        return known if trial in tuning.reliable else [math.inf]

    return {rate: losses(trial) for rate, trial in zip(tuning.rates, tuning.trials, strict=True)}
