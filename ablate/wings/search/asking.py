"""Proposals of a search: legal settings from the sampler or a grid.

An illegal proposal is repaired: nearby legal settings are found by changing few settings and keeping the rest.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from ablate.wings.search.samplers import ended
from ablate.wings.search.search_axes import AnyAxis, Choice
from ablate.wings.search.search_space import Params, SearchSpace, is_listed, spread_of, values_of
from ablate.wings.search.search_spec import SearchSpec
from ablate.wings.search.storage import Owner
from ablate.wings.search.trial_runner import IllegalError, Job, StudyTrialRunner

REPEATS, REPEAT, IMPORTED, BEYOND, SHARE = "repeats", "repeat", "imported", "beyond", "share"
"""User attributes of trials: number of the first trial with the same settings, how many such trials preceded this one,
whether its runs were in the store already, how far its measurements exceed the limits, and the share of it that was
trained before it was pruned."""
ILLEGAL_IN_A_ROW = 100
"""Maximum number of consecutive illegal proposals in one call."""
ROUNDING = 1e-6
"""What sums of shares may be off by."""


class ExhaustedError(Exception):
    """No untried legal settings are left."""


class Asking:
    """One command's proposals, drawn from the optuna study that all commands share."""

    def __init__(
        self, study: optuna.Study, spec: SearchSpec, lab: StudyTrialRunner, owner: Owner, sampler: str
    ) -> None:
        """sampler: kind of the sampler, with `auto` resolved."""
        self.study, self.spec, self.lab, self.owner = study, spec, lab, owner
        self._grid = self._combinations() if sampler == "grid" else None
        self._ends = time.monotonic() + spec.seconds

    def next(self) -> tuple[optuna.Trial, Job] | None:
        """A new trial with legal settings; None if there are enough trials, the time is over, or none are found."""
        with self.owner.asking():
            for _ in range(ILLEGAL_IN_A_ROW):
                trials = self.study.get_trials(deepcopy=False)
                counted = [trial for trial in trials if _counts(trial)]
                if cost_of(counted) > self.spec.trials - 1 + ROUNDING or time.monotonic() > self._ends:
                    return None
                try:
                    self._propose(trials)
                except ExhaustedError:
                    return None
                trial = self.study.ask()
                params = self._drawn(trial)
                self.owner.sign(trial)
                self._mark_repeat(trial, params, trials)
                if job := self._legal(trial, params):
                    return trial, job
        return None

    def again(self, trial: optuna.Trial) -> Job | None:
        """The job of a trial proposed earlier; None if its settings are illegal."""
        params = self._drawn(trial)
        if REPEAT not in trial.user_attrs:  # its command may have been killed before it marked a repeat
            earlier = [each for each in self.study.get_trials(deepcopy=False) if each.number < trial.number]
            self._mark_repeat(trial, params, earlier)
        return self._legal(trial, params)

    def _legal(self, trial: optuna.Trial, params: Params) -> Job | None:
        """The trial's first job; None if it is illegal. Then the sampler is told its distance from the constraints, and
        the nearest legal settings are enqueued."""
        try:
            return self.lab.job(params, self.spec.shares[0], trial.user_attrs.get(REPEAT, 0))
        except IllegalError as error:
            trial.set_user_attr("illegal", str(error))
            for name, far in (self.lab.distances(params) or {str(error): 1.0}).items():
                trial.set_constraint(name, far)
            self.study.tell(trial, state=TrialState.PRUNED)
        legal = repaired(self.lab.space, params, self.lab.distances)
        if legal is not None:
            self.study.enqueue_trial(legal)
        return None

    def _propose(self, trials: Sequence[FrozenTrial]) -> None:
        """Enqueue the next settings of a grid. Raises ExhaustedError if there are none."""
        if self._grid is None or any(trial.state == TrialState.WAITING for trial in trials):
            return
        params = next(self._grid, None)
        if params is None:
            raise ExhaustedError
        self.study.enqueue_trial(params)

    def _mark_repeat(self, trial: optuna.Trial, params: Params, trials: Sequence[FrozenTrial]) -> None:
        """Mark a trial whose settings were tried before, so that it trains with the next seeds."""
        settings = self.lab.space.settings(params)
        same = [t for t in trials if _counts(t, imported=True) and self.lab.space.settings(t.params) == settings]
        if same:
            trial.set_user_attr(REPEATS, same[0].number)
            trial.set_user_attr(REPEAT, len(same))

    def _combinations(self) -> Iterator[Params]:
        """Untried legal settings of the grid, shuffled so that a shorter search samples it evenly."""
        every = list(self.lab.space.all())
        np.random.default_rng(self.spec.seed).shuffle(every)
        for params in every:
            asked = self.study.get_trials(deepcopy=False)
            if not any(trial.params == params for trial in asked) and not self.lab.distances(params):
                yield params

    def _drawn(self, trial: optuna.Trial) -> Params:
        return self.lab.space.draw(lambda path, axis: suggest(trial, path, axis))


def seeds_of(trials: Sequence[FrozenTrial]) -> dict[int, list[tuple[float, ...]]]:
    """Scores of settings within the limits, keyed by the number that stands for them."""
    found, settings = defaultdict[int, list[tuple[float, ...]]](list), representatives(trials)
    beyond = {settings[trial.number] for trial in trials if trial.user_attrs.get(BEYOND)}
    for trial in trials:
        if trial.state == TrialState.COMPLETE and settings[trial.number] not in beyond:
            found[settings[trial.number]].append(tuple(trial.values))
    return found


def representatives(trials: Iterable[FrozenTrial]) -> dict[int, int]:
    """Number, by trial, of the first trial with the same settings that has a score; of the first if none has."""
    groups = defaultdict[int, list[FrozenTrial]](list)
    for trial in trials:
        groups[trial.user_attrs.get(REPEATS, trial.number)].append(trial)
    found: dict[int, int] = {}
    for alike in groups.values():
        stands = next((trial for trial in alike if trial.state == TrialState.COMPLETE), alike[0])
        found |= {trial.number: stands.number for trial in alike}
    return found


def counts_of_illegal(study: optuna.Study) -> Counter[str]:
    """Number of illegal proposals, by reason."""
    trials = study.get_trials(deepcopy=False)
    return Counter(str(t.user_attrs["illegal"]) for t in trials if "illegal" in t.user_attrs)


def _counts(trial: FrozenTrial, imported: bool = False) -> bool:
    """Whether a trial counts towards the search's number of trials. imported: count trials from the store too."""
    is_ours = imported or not trial.user_attrs.get(IMPORTED)
    return is_ours and (ended(trial) or trial.state == TrialState.RUNNING)


def cost_of(trials: Iterable[FrozenTrial]) -> float:
    """Cost of trials, in whole trials."""
    return math.fsum(trial.user_attrs.get(SHARE, 1.0) for trial in trials)


def suggest(trial: optuna.Trial, path: str, axis: AnyAxis) -> object:
    """The sampler's value on an axis."""
    spread = axis.distribution
    if isinstance(spread, optuna.distributions.CategoricalDistribution):
        return trial.suggest_categorical(path, spread.choices)
    if isinstance(spread, optuna.distributions.IntDistribution):
        return trial.suggest_int(path, spread.low, spread.high, step=spread.step, log=spread.log)
    if isinstance(spread, optuna.distributions.FloatDistribution):
        return trial.suggest_float(path, spread.low, spread.high, step=spread.step, log=spread.log)
    raise TypeError(f"unknown distribution {spread}")


Distances = Callable[[Params], Mapping[str, float]]
"""Settings → distance from each constraint that they violate; empty if they are legal."""

NEAREST, SPREAD = 6, 9
"""Values tried on an axis with many: this number of neighbours on each side, and this number over the range."""
MOST_MOVES, BEAM = 4, 4
"""Maximum number of changed settings, and the width of the beam search."""


def repaired(space: SearchSpace, params: Params, distances: Distances) -> Params | None:
    """The first legal settings that a beam search over single changes finds; None if it finds none.

    In each round, the smallest change that makes the settings legal wins; otherwise the `BEAM` candidates with the
    least sum of distances go on. Training settings are changed only if changes of the model do not help.
    """
    for section in (False, True):
        beam, seen = [params], set[str]()
        for _ in range(MOST_MOVES):
            reached: list[tuple[float, float, Params]] = []
            moves = [move for here in beam for move in _moves(space, here, section)]
            for far, changed in sorted(moves, key=lambda move: move[0]):
                key = repr(sorted(changed.items()))
                if key in seen:
                    continue
                seen.add(key)
                left = sum(distances(changed).values())
                if left == 0:
                    return changed
                reached.append((left, far, changed))
            beam = [changed for *_, changed in sorted(reached, key=lambda each: each[:2])[:BEAM]]
    return None


def _moves(space: SearchSpace, here: Params, train: bool) -> Iterator[tuple[float, Params]]:
    """Settings that differ on one axis, each with the size of the change as a share of the axis. train: change training
    settings, else the model's."""
    for path, axis in space.axes.items():
        if path in here and path.startswith("train.") == train:
            for far, value in _others(axis, here[path]):
                yield far, _completed(space, {**here, path: value})


def _completed(space: SearchSpace, params: Params) -> Params:
    """Settings after a change of a part: settings new to the part get a middle value, those it lacks are dropped."""
    return space.draw(lambda path, axis: params.get(path, middle(axis)))


def middle(axis: AnyAxis) -> Any:
    """A value in the middle of an axis."""
    if not is_listed(axis):
        return _evenly(axis, 3)[1]
    values = values_of(axis)
    return values[len(values) // 2]


def _others(axis: AnyAxis, value: Any) -> list[tuple[float, object]]:
    """Other values of an axis, with their distance from `value` as a share of the range; 1 between choices."""
    if isinstance(axis, Choice):
        return [(1.0, other) for other in values_of(axis) if other != value]
    spread = spread_of(axis)
    here, low, high = (_on_scale(each, spread.log) for each in (value, spread.low, spread.high))
    others = (other for other in _near(axis, value) if other != value)
    return [(abs(_on_scale(other, spread.log) - here) / (high - low), other) for other in others]


def _on_scale(number: float, log: bool) -> float:
    return math.log(number) if log else float(number)


def _near(axis: AnyAxis, value: float) -> list[float]:
    if not is_listed(axis):
        return _evenly(axis, SPREAD)
    values = values_of(axis)
    if len(values) <= 2 * NEAREST + SPREAD:
        return values
    at = int(np.argmin(np.abs(np.array(values) - value)))
    evenly = [values[round(i)] for i in np.linspace(0, len(values) - 1, SPREAD)]
    return sorted({*values[max(0, at - NEAREST) : at + NEAREST + 1], *evenly})


def _evenly(axis: AnyAxis, count: int) -> list[float]:
    spread = spread_of(axis)
    return [float(each) for each in (np.geomspace if spread.log else np.linspace)(spread.low, spread.high, count)]
