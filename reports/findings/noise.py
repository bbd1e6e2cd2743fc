"""A study's noise, from final and tuning runs together, and the uncertainty left by each arm's tuning. Pure."""

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
"""If one of two arms has more than UNEVEN times as many seeds, their noise is pooled only if a test at level DOUBT does
not find the smaller arm noisier."""


@dataclass(frozen=True)
class TunedChoice:
    """Penalty for the settings that an arm chose. For a learning rate tuned alone, also the interval of the best rate
    and the fitted curve, as points (rate, loss)."""

    penalty: Penalty
    rate: Interval | None = None
    curve: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class StudyNoise:
    """Noise model of all runs of a study (`ablate.noise.scatter`), the tuning of arms, the arms' mean losses, and the
    scatter of runs about their arm's mean (`apart`), for arms that are not paired by seed."""

    scatter: Scatter
    tunings: tuple[StudyTuning, ...] = ()
    losses: Mapping[str, float] | None = None
    apart: Scatter = NO_SCATTER

    @property
    def run(self) -> Noise | None:
        """Noise of one run."""
        return self.scatter.noise

    def of_pair(self, *arms: str) -> Noise | None:
        """Noise of one run of either arm. None if an arm is noisier than the rest, if the two move together so that
        their differences are quieter, or if the noise is unknown."""
        apart = any(arm in self.scatter.noisier for arm in arms) or frozenset(arms) in self.scatter.quiet
        return None if apart else self.run

    def difference(self, pair: tuple[str, str], values: Sequence[float], shared: float = 0.0) -> Difference | None:
        """First arm − second, from paired differences by seed, with all its noise; None if these allow no test.

        shared: standard error common to all seeds.
        """
        found = seed_difference(np.asarray(values), self.of_pair(*pair))
        if found is None:
            return None
        own, other = map(self.penalty, pair)
        return replace(found, shared=shared, own=own, other=other)

    def unpaired(self, pair: tuple[str, str], own: Sequence[float], others: Sequence[float]) -> Difference | None:
        """Difference of two means over unrelated seeds; None with fewer than two seeds in either arm, or without
        scatter.

        Welch's error and degrees of freedom are used for a pair with a noisier arm, and in a study whose runs are all
        paired. They are also used for unequal numbers of seeds where the smaller arm has the larger scatter, which
        pooling would understate.
        """
        if min(len(own), len(others)) < 2:
            return None
        first, second = (float(np.var(losses, ddof=1)) / len(losses) for losses in (own, others))
        run = None if any(arm in self.apart.noisier for arm in pair) else self.apart.noise
        if run is None or _is_noisier(min(own, others, key=len), max(own, others, key=len), run):
            # Welch–Satterthwaite
            error = math.sqrt(first + second)
            parts = first**2 / (len(own) - 1) + second**2 / (len(others) - 1)
            freedom = max(1, math.floor(error**4 / parts)) if parts else 1
        else:
            error, freedom = run.sd * math.sqrt(1 / len(own) + 1 / len(others)), run.freedom
        penalties = map(self.penalty, pair)
        difference = float(np.mean(own) - np.mean(others))
        return Difference(difference, error, freedom, 0.0, *penalties) if error else None

    def of_tuning(self, arm: str) -> Noise | None:
        """Noise of one tuning run of an arm: the pooled noise, or the arm's own where that is larger."""
        rows = self.scatter.noisier.items()
        own = [sd for row, sd in rows if row == arm or (isinstance(row, tuple) and row[0] == arm)]
        return self.run and replace(self.run, sd=max([self.run.sd, *own]))

    def penalty(self, arm: str) -> Penalty:
        """Distribution of the loss that an arm's choice of settings may have cost."""
        return self.choices[arm].penalty if arm in self.choices else NOTHING

    @property
    def odd(self) -> Mapping[str, Odd]:
        """Final runs that ended far from the other seeds of their arm, by arm."""
        return {str(row): odd for row, odd in self.scatter.odd.items() if isinstance(row, str)}

    @property
    def noisier(self) -> tuple[str, ...]:
        """Arms whose final runs are noisier than the rest."""
        return tuple(row for row in self.scatter.noisier if isinstance(row, str))

    @property
    def quiet(self) -> tuple[tuple[str, str], ...]:
        """Pairs of arms whose differences vary clearly less between seeds than those from other arms."""
        pairs = self.scatter.alike.items()
        found = ((str(other), str(row)) for row, other in pairs if frozenset({row, other}) in self.scatter.quiet)
        return tuple(found)

    @cached_property
    def choices(self) -> Mapping[str, TunedChoice]:
        """Choices of the arms that were tuned, by arm."""
        most = self.losses or {}
        return {
            each.arm: _choice(each, self.of_tuning(each.arm), most.get(each.arm, math.inf)) for each in self.tunings
        }


def _is_noisier(fewer: Sequence[float], more: Sequence[float], run: Noise) -> bool:
    """Whether the losses of an arm with far fewer seeds scatter more than the pooled noise, by a test at `DOUBT`."""
    ratio = float(np.var(fewer, ddof=1)) / run.sd**2
    uneven = len(more) > UNEVEN * len(fewer)
    return uneven and float(special.fdtrc(len(fewer) - 1, run.freedom, ratio)) < DOUBT


def study_noise(tunings: Sequence[StudyTuning], runs: pl.DataFrame) -> StudyNoise:
    """Noise of the finished runs, and of full-length tuning runs at the settings that arms chose."""
    finished = runs.filter(status="finished").drop_nulls("loss") if runs.height else runs
    judging: dict[str, dict[int, float]] = {}
    for arm, seed, loss in finished.select("arm", "seed", "loss").iter_rows() if finished.height else ():
        judging.setdefault(arm, {})[seed] = loss
    means = {arm: math.fsum(of.values()) / len(of) for arm, of in judging.items()}
    return StudyNoise(scatter(judging, *tuning_tables(tunings)), tuple(tunings), means)


def tuning_tables(tunings: Iterable[StudyTuning]) -> list[SeedLosses]:
    """One row per arm, keyed (arm, index of the trial with the chosen settings).

    A run at another learning rate starts from the same weights and reads the same batches as the run at the chosen
    rate. The two would count as two runs, but carry little more information than one. Shorter runs are noisier.
    """
    table: dict[tuple[str, int], dict[int, float]] = {}
    for each in tunings:
        reliable = [(place, trial) for place, trial in enumerate(each.trials) if trial in each.reliable]
        if reliable and each.fraction == 1 and each.trains:
            # the chosen settings, or the best if these were not tried
            _, _, place = min((trial.settings != each.chosen, trial.loss or 0.0, place) for place, trial in reliable)
            losses = each.trials[place].losses
            table[each.arm, place] = dict(enumerate(loss for loss in losses if loss is not None))
    return [table] if table else []


def _choice(tuning: StudyTuning, noise: Noise | None, most: float) -> TunedChoice:
    """Penalty of an arm's choice; unbounded at an edge of the settings tried, and if no seed trained."""
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
    """Losses by learning rate; infinite for a rate at which a seed failed."""

    def losses(trial: StudyTrial) -> list[float]:
        known = [loss for loss in trial.losses if loss is not None]
        return known if trial in tuning.reliable else [math.inf]

    return {rate: losses(trial) for rate, trial in zip(tuning.rates, tuning.trials, strict=True)}
