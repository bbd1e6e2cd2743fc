"""Initial trials of a search: stored runs that are trials of it, the base, and the settings to `enqueue`.

A stored run with the identity of a trial counts as that trial, whichever study trained it: so an edited search keeps
the trials that are still legal, and nothing is trained twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import optuna
from optuna.trial import TrialState

from ablate.study.arms import Arm, edits_in
from ablate.study.study import StudyError
from ablate.training.spec import TrainSpec
from ablate.wings.search.asking import BEYOND, IMPORTED
from ablate.wings.search.search_axes import AnyAxis, Choice, Ratio, label
from ablate.wings.search.search_space import Params, SearchSpace, number_at, spread_of
from ablate.wings.search.storage import Owner
from ablate.wings.search.trial_runner import IllegalError, StudyTrialRunner
from store.documents import RunDocument
from zoo.settings.edits import expand
from zoo.spec import ModelSpec, parse

BEGUN = "begun"
SPELLINGS = 64
"""Maximum number of settings tried for one model, which may match several patterns."""


def begin(lab: StudyTrialRunner, study: optuna.Study, owner: Owner) -> int:
    """Fill a new search with stored trials, the base and `enqueue`. Returns the number of trials from the store.

    Raises StudyError for settings of `enqueue` that cannot be built, or lie outside the space.
    """
    known = []
    for place, settings in enumerate(lab.spec.enqueue):
        target = ("search", "enqueue", str(place))
        arm = lab.space.builder.build("", list(edits_in(expand(settings), target, 0)), target)
        params = _spelt(lab, arm)
        if params is None:
            reason = "not in the space: all settings outside the space must be the base's"
            raise lab.study.error(".".join(target), reason)
        known.append(params)
    with owner.asking():
        trials = study.get_trials(deepcopy=False)
        is_new = all(t.state == TrialState.WAITING or IMPORTED in t.user_attrs for t in trials)
        if study.user_attrs.get(BEGUN) or not is_new:
            return 0
        count = sum(_imported(lab, study, run) for run in _candidates(lab))
        base = base_params(lab)
        for params in (*([base] if base else []), *known):
            study.enqueue_trial(params, skip_if_exists=True)
        study.set_user_attr(BEGUN, True)
    return count


def base_params(lab: StudyTrialRunner) -> Params | None:
    """The base's settings in the space; None if it lies outside, or breaks a constraint."""
    params = _spelt(lab, lab.space.base)
    return None if params is None or lab.distances(params) else params


def base_on_axes(lab: StudyTrialRunner) -> Params:
    """The base's value on every axis that has it."""
    base = lab.space.base
    values = _finder(base.model, base.train)
    known = {path: next(values(path, axis), None) for path, axis in lab.space.axes.items()}
    return {**{path: value for path, value in known.items() if value is not None}, **(_spelt(lab, base) or {})}


def _spelt(lab: StudyTrialRunner, arm: Arm) -> Params | None:
    """The settings that yield an arm; None if the space has none."""
    found = (params for params in spellings(lab.space, arm.model, arm.train))
    return next((params for params in found if lab.space.arm("", params).identity == arm.identity), None)


def _candidates(lab: StudyTrialRunner) -> Iterator[RunDocument]:
    """Stored runs that may be trials: those with the first trial seed, the same data and numerics, and the base's
    training settings except those in the space."""
    (base, *_) = lab.control().requests
    fixed = {name for name in base.identity.train if f"train.{name}" not in lab.space.axes}
    fixed = {name for name in fixed if not any(axis.startswith(f"train.{name}.") for axis in lab.space.axes)}
    for digest in lab.store.runs():
        run = lab.store.read_run(digest)
        if run is None or run.seed != lab.spec.seed_numbers[0] or run.reads != base.identity.reads:
            continue
        same = run.data == base.identity.data and run.numerics == base.identity.numerics and run.start is None
        if same and all(run.train.get(name) == base.identity.train[name] for name in fixed):
            yield run


def _imported(lab: StudyTrialRunner, study: optuna.Study, run: RunDocument) -> bool:
    """Add a stored run as a trial, if it is one and all its scores are known. Returns whether it was added."""
    for params in spellings(lab.space, parse(run.model), TrainSpec.of(run)):
        try:
            job = lab.job(params, lab.spec.shares[0])
        except IllegalError:
            continue
        values = lab.values(job) if run.digest in job.digests else None
        if values is None:
            continue
        beyond = dict(lab.beyond(job))
        over = {name: far for name, far in beyond.items() if far > 0}
        trial = optuna.trial.create_trial(
            values=list(values),
            params=params,
            distributions={path: lab.space.axes[path].distribution for path in params},
            user_attrs={IMPORTED: True, "runs": list(job.digests), **({BEYOND: over} if over else {})},
            constraints=beyond or None,
            # trials are pruned against the curves of those before them
            intermediate_values={i: loss for i, loss in enumerate(lab.curve(job), start=1) if math.isfinite(loss)},
        )
        study.add_trial(trial)
        return True
    return False


def spellings(space: SearchSpace, model: ModelSpec, train: TrainSpec) -> Iterator[Params]:
    """Settings of a space that may yield a model and its training; callers have to build and compare them."""
    try:
        yield from islice(space.combinations(_finder(model, train)), SPELLINGS)
    except StudyError:  # a part that the space's blocks do not have
        return


def _finder(model: ModelSpec, train: TrainSpec) -> Callable[[str, AnyAxis], Iterator[Any]]:
    """Function that finds the values of an axis, in optuna's representation, that may stand for what a model has."""
    raw, width = {**model.model_dump(mode="json"), "train": train.model_dump(mode="json")}, model.d_model

    def values(path: str, axis: AnyAxis) -> Iterator[Any]:
        number: float | None = number_at(model, train, path)
        part: Any = raw
        if isinstance(axis, Choice):
            for key in path.split("."):
                part = part.get(key) if isinstance(part, dict) else None
            yield from (label(value) for value in axis.choice if _may_be(value, number, part, width))
        elif number is not None:
            spread, found = spread_of(axis), number / width if isinstance(axis, Ratio) else number
            steps = (found - spread.low) / (spread.step or 1)
            is_on = spread.step is None or abs(steps - round(steps)) < 1e-6
            if is_on and spread.low <= found <= spread.high:
                yield found

    return values


def _may_be(value: Any, number: float | None, part: Any, width: int) -> bool:
    if isinstance(value, bool) or value is None:
        return bool(part == value)
    if isinstance(value, int | float):
        return number == value
    if isinstance(value, str) and number is not None:
        return value.endswith("x") and float(value[:-1]) * width == number
    kind = value.get("kind") if isinstance(value, dict) else value
    return not isinstance(kind, str) or kind == (part.get("kind") if isinstance(part, dict) else part)
