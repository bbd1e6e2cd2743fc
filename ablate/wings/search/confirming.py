"""Confirmation: the best trials and the base with the same fresh seeds, which selected nothing."""

from __future__ import annotations

from dataclasses import replace

import optuna

from ablate.wings.search.ranking import Values, best_first, fronts
from ablate.wings.search.trial_runner import Job, StudyTrialRunner
from store.documents import Confirmed
from store.documents.study import UNJUDGED

MOST = 3
"""Most members of a Pareto front that are confirmed, by crowding distance."""


def confirmation(lab: StudyTrialRunner, study: optuna.Study, scores: Values) -> dict[str, Job]:
    """Runs of the base and of the best trials that differ from it, by name. Empty if no trial does, or if runs are too
    short for conclusions. Trials have seeds from 1000 up, and these are those of a promoted study, from 0 up."""
    seeds, base = tuple(range(lab.spec.confirm)), lab.study.arms[0]
    if not seeds or lab.study.scale in UNJUDGED:
        return {}
    trials, ways = study.get_trials(deepcopy=False), list(lab.spec.objectives.values())
    best, count = best_first(scores, ways), 1
    if len(ways) > 1:
        best, count = best[: sum(map(len, fronts(scores, ways)[:1]))], MOST
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
