"""A study's noise, from final and tuning runs together, and the uncertainty left by each arm's tuning. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import polars as pl

from reports.judge.noise import Noise, SeedLosses
from reports.judge.noise.curve import RateCurve
from reports.judge.noise.difference import NOTHING, UNBOUNDED, Difference, Penalty, choice_penalty
from reports.judge.noise.moderated import NoiseModel, Odd
from reports.judge.reading.collected import Collected
from reports.judge.reading.outcomes import FAILED
from reports.judge.statistics.estimates import Interval
from store.documents import StudyTuning
from store.documents.tuning import RATE


@dataclass(frozen=True)
class TunedChoice:
    """Penalty for the settings that an arm chose. For a learning rate tuned alone, also the interval of the best rate
    and the fitted curve, as points (rate, loss)."""

    penalty: Penalty
    rate: Interval | None = None
    curve: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class StudyNoise:
    """Noise of all runs of a study, and what the tuning of its arms left uncertain."""

    model: NoiseModel
    tunings: tuple[StudyTuning, ...] = ()

    @property
    def run(self) -> Noise | None:
        """Noise of one run."""
        return self.model.run

    @property
    def odd(self) -> Mapping[str, Odd]:
        """Final runs that ended far from the other seeds of their arm, by arm."""
        return {str(arm): odd for arm, odd in self.model.odd.items()}

    def difference(self, arm: str, base: str, shared: float = 0.0) -> Difference | None:
        """First arm − second with all its noise; None if these runs allow no test.

        shared: standard error common to all seeds.
        """
        found = self.model.difference(arm, base)
        return found and replace(found, shared=shared, own=self.penalty(arm), other=self.penalty(base))

    def penalty(self, arm: str) -> Penalty:
        """Distribution of the loss that an arm's choice of settings may have cost."""
        return self.choices[arm].penalty if arm in self.choices else NOTHING

    @cached_property
    def choices(self) -> Mapping[str, TunedChoice]:
        """Choices of the arms that were tuned, by arm."""
        found = {}
        known = [loss for arm in self.model.rows for loss in self.model.finished(arm).values()]
        is_floored = min(known, default=0.0) >= 0  # no choice can have cost more than all of a loss that ends at zero
        for each in self.tunings:
            own = [each.arm] if each.arm in self.model.rows else []
            # noise of one tuning run: that of a typical run, or more if the arm's own runs have more
            rows = [*(row for row in self.model.beside if row[0] == each.arm), *own]
            louder = max(map(self.model.louder, rows), default=1.0)
            noise = self.run and replace(self.run, sd=self.run.sd * louder)
            losses = self.model.finished(each.arm) if own else {}
            found[each.arm] = _choice(each, noise, most=fmean(losses.values()) if losses and is_floored else math.inf)
        return found


def noise_of(data: Collected) -> StudyNoise:
    """Noise of a study's runs, of the same baseline's in other studies, and of like runs."""
    found = study_noise(data.study.tuning, data.runs, data.history)
    base = data.study.baseline
    whole = {seed: loss for losses in data.shared.values() for seed, loss in losses.items()}
    rows = {arm: {**losses, **whole} if arm == base else losses for arm, losses in found.model.rows.items()}
    return replace(found, model=replace(found.model, rows=rows))


def study_noise(tunings: Sequence[StudyTuning], runs: pl.DataFrame, history: Noise | None = None) -> StudyNoise:
    """Noise of the runs that ended, and of full-length tuning runs at the settings that arms chose."""
    rows: dict[str, dict[int, float]] = {}
    for arm, seed, loss, status in runs.select("arm", "seed", "loss", "status").iter_rows() if runs.height else ():
        if status in FAILED or (status == "finished" and loss is not None):
            rows.setdefault(arm, {})[seed] = math.inf if status in FAILED else loss
    return StudyNoise(NoiseModel(rows, tuning_rows(tunings), history), tuple(tunings))


def tuning_rows(tunings: Iterable[StudyTuning]) -> SeedLosses:
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
    return table


def _choice(tuning: StudyTuning, noise: Noise | None, most: float) -> TunedChoice:
    """Penalty of an arm's choice; unbounded at an edge of the settings tried, and if no seed trained. most: nats
    that it can have cost."""
    if not tuning.trains or tuning.edges or noise is None or not tuning.reliable:
        return TunedChoice(UNBOUNDED)
    if list(tuning.chosen) != [RATE]:
        known = tuning.reliable
        chosen = next((place for place, trial in enumerate(known) if trial.settings == tuning.chosen), None)
        if chosen is None:
            return TunedChoice(UNBOUNDED.at_most(most))
        means = [trial.loss for trial in known if trial.loss is not None]
        of_mean = replace(noise, sd=noise.sd / math.sqrt(len(known[0].losses)))
        return TunedChoice(choice_penalty(means, chosen, of_mean).at_most(most))
    losses = {
        rate: [loss for loss in trial.losses if loss is not None] if trial in tuning.reliable else [math.inf]
        for rate, trial in zip(tuning.rates, tuning.trials, strict=True)
    }
    curve = RateCurve.fit(losses, noise)
    if curve is None:
        return TunedChoice(UNBOUNDED)
    low, high = curve.bounds
    return TunedChoice(curve.penalty(tuning.rate).at_most(most), Interval(tuning.rate, low, high), curve.points())
