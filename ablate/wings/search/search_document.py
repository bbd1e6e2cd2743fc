"""The result of a search as a document and as tables, and the runs beside the trials that make it a fair comparison.

These are the base at a tuned learning rate, as the trials' rates were searched, and the best trials and the base with
the same fresh seeds, which selected nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
import pandas
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.trial import FrozenTrial
from pydantic_core import to_jsonable_python

from ablate.planning.study_document import spent_budget
from ablate.readable import now
from ablate.study.tune_spec import FINE
from ablate.wings.search.asking import BEYOND, IMPORTED, counts_of_illegal, representatives, seeds_of
from ablate.wings.search.documents import (
    Confirmed,
    Distribution,
    SearchBase,
    SearchDocument,
    SearchFolder,
    TrialRecord,
    TrialState,
    finite,
)
from ablate.wings.search.history import base_on_axes
from ablate.wings.search.ranking import Values, best_first, fronts
from ablate.wings.search.samplers import chosen_sampler, ended
from ablate.wings.search.search_space import SEARCH, edit_of, number_at
from ablate.wings.search.search_spec import NOT_OF_A_SCORE, SearchSpec
from ablate.wings.search.trial_runner import IllegalError, Job, StudyTrialRunner
from store.documents.study import UNJUDGED
from store.documents.tuning import RATE
from zoo.settings.identity import digest_of, identity_of

TrialScores = Sequence[Mapping[int, tuple[float, ...]]]
"""Scores by trial number, one map per share of the budget."""


def search_digest(lab: StudyTrialRunner) -> str:
    """Digest of everything that affects a trial's score, which identifies a search.

    The number of trials, the sampler and the pruner may change while a search goes on.
    """
    asked = {name: each for name, each in identity_of(lab.spec).items() if name not in NOT_OF_A_SCORE}
    return digest_of(
        {
            "search": asked,
            "model": lab.base.spec.identity(),
            "train": identity_of(lab.base.train),
            "budget": identity_of(lab.study.budget),
            "data": lab.base.identity.digest,
        }
    )[:8]


def asked_before(lab: StudyTrialRunner, document: SearchDocument) -> bool:
    """Whether a stored search is the present one: it has the same space, objectives, constraints, shares and seeds, and
    a finished trial has the runs that it would have today."""
    spec, trial = lab.spec, next((trial for trial in document.trials if trial.state == "finished"), None)
    asked = {name: getattr(document, name) for name in ("space", "objectives", "constraints")}
    before = SearchSpec.model_validate({**asked, "seeds": len(document.seeds)})
    is_same = all(getattr(before, name) == getattr(spec, name) for name in (*asked, "seeds"))
    if trial is None or not is_same or document.shares != tuple(spec.shares):
        return False
    try:
        return lab.job(trial.params).digests == trial.runs
    except IllegalError:
        return False


def search_document(
    lab: StudyTrialRunner, study: optuna.Study, done: TrialScores, journal: str | None = None, has_ended: bool = True
) -> SearchDocument:
    """Document of a search's results so far. has_ended: include the confirmation."""
    spec = lab.spec
    means, ways = means_of(study, done), list(spec.objectives.values())
    scores = _finite(means)
    best = set(best_first(scores, ways)[:1] if len(ways) == 1 else next(iter(fronts(scores, ways)), []))
    trials = [trial for trial in study.get_trials(deepcopy=False) if ended(trial)]
    settings = representatives(trials)
    # The base's scores with the trials' seeds, if trained; at its tuned rate, if known.
    job = base_at(lab, study.user_attrs.get(BASE_RATE))
    values = lab.values(job)
    base = SearchBase(
        name=lab.study.baseline,
        runs=job.digests,
        values=None if values is None else finite(values),
        params=base_on_axes(lab),
    )
    return SearchDocument(
        name=lab.study.name,
        scale=lab.study.scale,
        path=str(lab.study.path.resolve()) if lab.study.path else None,
        question=lab.study.question,
        source=lab.study.text,
        created=now(),
        optuna_study=study.study_name,
        budget=spent_budget(lab.planned_base.study.budget),
        space={path: axis.model_dump(mode="json", exclude_none=True) for path, axis in spec.space.items()},
        objectives=spec.objectives,
        sampler=chosen_sampler(spec, lab.space),
        pruner=pruning.kind if (pruning := spec.pruning(job.validations)) else None,
        shares=tuple(spec.shares),
        seeds=spec.seed_numbers,
        constraints=tuple(spec.constraints),
        base=base,
        illegal=dict(counts_of_illegal(study).most_common()),
        trials=tuple(
            _trial(lab, trial, done, settings[trial.number], means.get(trial.number), trial.number in best)
            for trial in trials
        ),
        confirmed=confirmed(lab, confirmation(lab, study, scores)) if has_ended else (),
        journal=journal,
    )


def scores_of(study: optuna.Study, done: TrialScores) -> dict[int, tuple[float, ...]]:
    """The finite ones of `means_of`: settings with a diverged run are left out."""
    return _finite(means_of(study, done))


def means_of(study: optuna.Study, done: TrialScores) -> dict[int, tuple[float, ...]]:
    """Mean scores of settings within the limits that had the full budget, keyed by the number that stands for them;
    infinite if a run diverged."""
    trials = study.get_trials(deepcopy=False)
    found = seeds_of(trials)
    if len(done) > 1:
        found = {number: [values] for number, values in done[-1].items() if not trials[number].user_attrs.get(BEYOND)}
    return {number: tuple(map(statistics.fmean, zip(*values, strict=True))) for number, values in found.items()}


def _finite(means: Mapping[int, tuple[float, ...]]) -> dict[int, tuple[float, ...]]:
    return {number: values for number, values in means.items() if np.isfinite(values).all()}


def _trial(
    lab: StudyTrialRunner,
    trial: FrozenTrial,
    done: TrialScores,
    settings: int,
    mean: tuple[float, ...] | None,
    best: bool,
) -> TrialRecord:
    """settings: number of the trial that stands for its settings. mean: over their seeds, if it is this one."""
    reached = tuple(finite(values[trial.number]) for values in done if trial.number in values)
    state: TrialState = "pruned" if trial.state == optuna.trial.TrialState.PRUNED else "failed"
    if trial.state == optuna.trial.TrialState.COMPLETE:
        state = "finished" if len(reached) == len(done) else "short"
    return TrialRecord(
        number=trial.number,
        state=state,
        best=best,
        settings=to_jsonable_python(lab.space.settings(trial.params)),
        params=trial.params,
        distributions={path: distribution_of(each) for path, each in trial.distributions.items()},
        values=None if state != "finished" else reached[-1] if mean is None else finite(mean),
        reached=reached,
        curve={str(step): value for step, value in trial.intermediate_values.items()},
        runs=tuple(trial.user_attrs.get("runs", ())),
        error=trial.user_attrs.get("error"),
        repeats=None if settings == trial.number else settings,
        imported=bool(trial.user_attrs.get(IMPORTED)),
        beyond=trial.user_attrs.get(BEYOND, {}),
    )


def distribution_of(spread: BaseDistribution) -> Distribution:
    return Distribution.model_validate_json(distribution_to_json(spread))


def write_tables(document: SearchDocument, folder: SearchFolder) -> None:
    """Write one row per trial, with its settings and objectives, as CSV and as parquet."""
    rows = []
    for trial in document.trials:
        values = dict(zip(document.objectives, trial.values or (), strict=False))
        rows.append({"trial": trial.number, "state": trial.state, **values, **trial.params})
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["trial", "state"]
    frame = pandas.DataFrame({name: column_of([row.get(name) for row in rows]) for name in names})
    with folder.table("csv") as path:
        frame.to_csv(path, index=False)
    with folder.table("parquet") as path:
        frame.to_parquet(path, index=False)


def column_of(values: Sequence[Any]) -> list[Any]:
    """Values converted to one type: mixed numbers to float, other mixtures (a choice of `4x` or 512) to text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or len(kinds) < 2:
        return [float(value) if kinds == {int, float} and value is not None else value for value in values]
    return [None if value is None else str(value) for value in values]


BASE_RATE = "base_rate"
"""Attribute of the optuna study: the tuned rate of the base."""
MOST_RATES = 7
MOST_CONFIRMED = 3
"""Most members of a Pareto front that are confirmed, by crowding distance."""


def tuned_rate(lab: StudyTrialRunner, train: Callable[[Job], None]) -> float:
    """The best of the base's rate, half and twice that rate, with the trials' seeds. While the best is at an end of the
    list, the next factor of 2 is tried too, up to `MOST_RATES` rates.

    Args:
        train: runs a job until its scores are in the store.
    """
    own = number_at(lab.base.spec, lab.base.train, RATE)
    if own is None:
        raise RuntimeError("a training has a learning rate")
    scores = {own * factor: math.inf for factor in FINE}
    while True:
        for rate in [rate for rate, score in scores.items() if score == math.inf]:
            job = base_at(lab, rate)
            train(job)
            # The loss, else the first objective, oriented so that less is better.
            values = lab.values(job)
            name = next((name for name in lab.spec.objectives if name == "loss"), next(iter(lab.spec.objectives)))
            if values is None:
                raise RuntimeError("the base ended without results")
            value = values[list(lab.spec.objectives).index(name)]
            found = value if lab.spec.objectives[name] == "minimize" else -value
            scores[rate] = found if math.isfinite(found) else 1e300  # diverged; infinity marks untried rates
        best = min(scores, key=lambda rate: scores[rate])
        ends = {min(scores): best / 2, max(scores): best * 2}
        if best not in ends or len(scores) >= MOST_RATES or math.isinf(scores[best]):
            return best
        scores[ends[best]] = math.inf


def base_at(lab: StudyTrialRunner, rate: float | None) -> Job:
    """Runs of the base with the trials' seeds, at a rate; None for the base's own."""
    if rate is None:
        return lab.control()
    arm = lab.space.builder.build(lab.study.baseline, [edit_of(RATE, float(f"{rate:.6g}"))], SEARCH)
    return lab.seeded(arm, lab.spec.seed_numbers)


def confirmation(lab: StudyTrialRunner, study: optuna.Study, scores: Values) -> dict[str, Job]:
    """Runs of the base and of the best trials that differ from it, by name. Empty if no trial does, or if runs are too
    short for conclusions. Trials have seeds from 1000 up, and these are those of a promoted study, from 0 up."""
    seeds, base = tuple(range(lab.spec.confirm)), lab.study.arms[0]
    if not seeds or lab.study.scale in UNJUDGED:
        return {}
    trials, ways = study.get_trials(deepcopy=False), list(lab.spec.objectives.values())
    best, count = best_first(scores, ways), 1
    if len(ways) > 1:
        best, count = best[: sum(map(len, fronts(scores, ways)[:1]))], MOST_CONFIRMED
    arms = (lab.space.arm(f"trial_{number}", trials[number].params) for number in best)
    others = [arm for arm in arms if arm.identity != base.identity][:count]
    return {arm.name: lab.seeded(arm, seeds) for arm in (base, *others)} if others else {}


def confirmed(lab: StudyTrialRunner, jobs: dict[str, Job]) -> tuple[Confirmed, ...]:
    """Their scores; empty unless every run has ended."""
    found = []
    for name, job in jobs.items():
        scores = [lab.values(replace(job, requests=(request,))) for request in job.requests]
        known = [score for score in scores if score is not None]
        if len(known) < len(scores):
            return ()
        found.append(Confirmed.of(name, job.digests, known))
    return tuple(found)
