"""The base at its own best learning rate, since the trials' rates were searched for, too."""

from __future__ import annotations

import math
from collections.abc import Callable

from ablate.searching.trial_runner import Job, StudyTrialRunner
from ablate.store.documents.tuning import RATE
from ablate.study.search_space import SEARCH, edit_of, number_at
from ablate.study.tune_spec import FINE

BASE_RATE = "base_rate"
"""Attribute of the optuna study: the rate that was found."""
MOST_RATES = 7


def tuned_rate(lab: StudyTrialRunner, train: Callable[[Job], None]) -> float:
    """The best of the base's rate, half and twice it, with the trials' seeds. While an end of the list is the best, the
    next factor of 2 is tried, too, up to `MOST_RATES` rates.

    Args:
        train: brings a job's runs to their scores.
    """
    own = number_at(lab.base.spec, lab.base.train, RATE)
    if own is None:
        raise RuntimeError("a training has a learning rate")
    scores = {own * factor: math.inf for factor in FINE}
    while True:
        for rate in [rate for rate, score in scores.items() if score == math.inf]:
            job = base_at(lab, rate)
            train(job)
            # The first objective that depends on the rate, to be minimized.
            values = lab.values(job)
            name = next((name for name in lab.spec.objectives if name == "loss"), next(iter(lab.spec.objectives)))
            if values is None:
                raise RuntimeError("the base ended without results")
            value = values[list(lab.spec.objectives).index(name)]
            found = value if lab.spec.objectives[name] == "minimize" else -value
            scores[rate] = found if math.isfinite(found) else 1e300  # a little less than infinite where it diverged
        best = min(scores, key=lambda rate: scores[rate])
        ends = {min(scores): best / 2, max(scores): best * 2}
        if best not in ends or len(scores) >= MOST_RATES or math.isinf(scores[best]):
            return best
        scores[ends[best]] = math.inf


def base_at(lab: StudyTrialRunner, rate: float | None) -> Job:
    """Runs of the base with the trials' seeds, at a rate or at its own."""
    if rate is None:
        return lab.control()
    arm = lab.space.builder.build(lab.study.baseline, [edit_of(RATE, float(f"{rate:.6g}"))], SEARCH)
    return lab.seeded(arm, lab.spec.seed_numbers)
