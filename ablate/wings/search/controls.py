"""Runs beside the trials, for fair comparisons: the base at a tuned learning rate, as the trials' rates were searched,
and the best trials and the base with the same fresh seeds, which selected nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import optuna

from ablate.study.tune_spec import FINE
from ablate.wings.search.documents import Confirmed
from ablate.wings.search.ranking import Values, best_first, fronts
from ablate.wings.search.search_space import SEARCH, edit_of, number_at
from ablate.wings.search.trial_runner import Job, StudyTrialRunner
from store.documents.study import UNJUDGED
from store.documents.tuning import RATE

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
