"""Proposals of a search: legal settings from the sampler or from a grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from ablate.searching.laboratory import IllegalError, Job, Laboratory
from ablate.searching.samplers import ended
from ablate.searching.storage import Owner
from ablate.study.search_axes import AnyAxis
from ablate.study.search_space import Params
from ablate.study.search_spec import SearchSpec

ILLEGAL_IN_A_ROW = 20
"""After so many illegal proposals the sampler is given legal settings, drawn at random."""
LEGAL_DRAWS = 10_000


class ExhaustedError(Exception):
    """There are no more legal settings."""


class Asking:
    """One command's questions to the sampler that all commands share."""

    def __init__(self, study: optuna.Study, spec: SearchSpec, lab: Laboratory, owner: Owner, seed: int) -> None:
        self.study, self.spec, self.lab, self.owner = study, spec, lab, owner
        self._rng = np.random.default_rng(seed)
        self._grid = self._combinations() if spec.sampler == "grid" else None
        self._exhausted = False

    def next(self) -> tuple[optuna.Trial, Job] | None:
        """A new trial with legal settings; None when enough were asked for."""
        with self.owner.asking():
            for attempt in count():
                trials = self.study.get_trials(deepcopy=False)
                if self._exhausted or sum(map(_counts, trials)) >= self.spec.trials:
                    return None
                try:
                    self._propose(attempt)
                except ExhaustedError:
                    self._exhausted = True
                    return None
                trial = self.study.ask()
                params = self._drawn(trial)
                self.owner.sign(trial)
                if job := self._legal(trial, params):
                    return trial, job
        raise AssertionError("proposals have no end")

    def again(self, trial: optuna.Trial) -> Job | None:
        """The job of a trial that was asked for before; None where it was not legal."""
        return self._legal(trial, self._drawn(trial))

    def _legal(self, trial: optuna.Trial, params: Params) -> Job | None:
        """The trial's first job; an illegal trial ends here, with the reason."""
        try:
            return self.lab.job(params, self.spec.shares[0])
        except IllegalError as error:
            trial.set_user_attr("illegal", str(error))
            self.study.tell(trial, state=TrialState.FAIL)
            return None

    def _propose(self, attempt: int) -> None:
        """Say what is asked next where that is not for the sampler to say."""
        if self._grid is not None:
            params = next(self._grid, None)
            if params is None:
                raise ExhaustedError
            self.study.enqueue_trial(params)
        elif attempt and attempt % ILLEGAL_IN_A_ROW == 0:
            self.study.enqueue_trial(self._legal_draw())

    def _legal_draw(self) -> Params:
        for _ in range(LEGAL_DRAWS):
            params = self.lab.space.random(self._rng)
            try:
                self.lab.job(params, self.spec.shares[0])
            except IllegalError:
                continue
            return params
        raise ExhaustedError

    def _combinations(self) -> Iterator[Params]:
        """The grid, in an order that a shorter search samples evenly, without what was asked before."""
        every = list(self.lab.space.all())
        np.random.default_rng(0).shuffle(every)
        for params in every:
            asked = self.study.get_trials(deepcopy=False)
            if not any(trial.params == params for trial in asked):
                yield params

    def _drawn(self, trial: optuna.Trial) -> Params:
        return self.lab.space.draw(lambda path, axis: _suggest(trial, path, axis))


def counts_of_illegal(study: optuna.Study) -> Counter[str]:
    """Numbers of refused proposals, by reason."""
    trials = study.get_trials(deepcopy=False)
    return Counter(str(t.user_attrs["illegal"]) for t in trials if "illegal" in t.user_attrs)


def _counts(trial: FrozenTrial) -> bool:
    """Whether a trial is one of those that a search asks for."""
    return ended(trial) or trial.state == TrialState.RUNNING


def _suggest(trial: optuna.Trial, path: str, axis: AnyAxis) -> object:
    spread = axis.distribution
    if isinstance(spread, optuna.distributions.CategoricalDistribution):
        return trial.suggest_categorical(path, spread.choices)
    if isinstance(spread, optuna.distributions.IntDistribution):
        return trial.suggest_int(path, spread.low, spread.high, step=spread.step)
    if isinstance(spread, optuna.distributions.FloatDistribution):
        return trial.suggest_float(path, spread.low, spread.high, step=spread.step, log=spread.log)
    raise TypeError(f"unknown distribution {spread}")
