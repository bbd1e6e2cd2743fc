"""Checks of a search before its first trial: that the space has legal settings, and that objectives can be measured."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ablate.study.complaints import StudyError
from ablate.wings.search.asking import repaired
from ablate.wings.search.search_constraints import COSTS
from ablate.wings.search.search_constraints import MEASURED as LIMITED
from ablate.wings.search.search_space import Params, number_at
from ablate.wings.search.search_spec import DIRECTIONS, MEASURED, OF_CACHES
from ablate.wings.search.trial_runner import StudyTrialRunner, quantity
from evals.costs.spec import NO_CACHE
from zoo.errors import did_you_mean
from zoo.settings.edits import flatten

PROBES, REPAIRS = 200, 20
"""Number of random settings tried, and of those that are repaired; if none is legal then, the space counts as empty."""


def check_space(lab: StudyTrialRunner) -> None:
    """Raise StudyError if objectives or constraints are unavailable, the budget is in seconds, or nothing is legal."""
    _check_objectives(lab)
    if lab.study.budget.seconds is not None:
        raise lab.study.error("budget.seconds", "a search cannot use a budget in seconds: give flops or tokens")
    rng, refused, is_legal = np.random.default_rng(0), Counter[str](), False
    named = {name for each in lab.rules.values() for name in each.names}
    unknown = {name for name in named if name not in LIMITED and quantity(lab.base, name) is None}
    for attempt in range(PROBES):
        params = lab.space.random(rng)
        unknown -= {name for name in unknown if _has(lab, params, name)}
        if not is_legal:
            wrong = lab.distances(params)
            near = repaired(lab.space, params, lab.distances) if wrong and attempt < REPAIRS else None
            is_legal = not wrong or near is not None
            refused.update(wrong.keys())
        if is_legal and not unknown:
            return
    for place, each in enumerate(lab.rules.values()):
        for name in unknown.intersection(each.names):
            known = [*COSTS, *LIMITED, *(path for path, _ in flatten(lab.base.spec.model_dump()))]
            reason = f"unknown path or cost '{name}'{did_you_mean(name, known)}"
            raise lab.study.error(f"search.constraints.{place}", reason)
    if not is_legal:
        reasons = ", ".join(f"{count} by '{reason}'" for reason, count in refused.most_common())
        raise lab.study.error("search.space", f"no valid settings at or near {PROBES} random ones: refused {reasons}")


def _has(lab: StudyTrialRunner, params: Params, name: str) -> bool:
    """Whether a model with these settings has a number at the path `name`."""
    try:
        arm = lab.space.arm("", params)
    except StudyError:
        return False
    return number_at(arm.model, arm.train, name) is not None


def _check_objectives(lab: StudyTrialRunner) -> None:
    tasks = lab.study.evals.scored() if lab.study.evals else ()
    unmeasured = "not measured, as the study has `measure: null`"
    for place, name in enumerate(lab.spec.objectives):
        task = name.partition(".")[0]
        if name not in DIRECTIONS and task not in tasks:
            reason = f"{name}: the study's evals have no task {task}{did_you_mean(task, tasks)}"
            raise lab.study.error(f"search.objectives.{place}", reason)
        if name in MEASURED and lab.study.measure is None:
            raise lab.study.error(f"search.objectives.{place}", f"{name}: {unmeasured}")
        if name in OF_CACHES and lab.base.kv_bytes_per_token is None:
            raise lab.study.error(f"search.objectives.{place}", f"{name}: {NO_CACHE}")
    for place, each in enumerate(lab.rules.values()):
        for name in each.names:
            if name in MEASURED and lab.study.measure is None:
                raise lab.study.error(f"search.constraints.{place}", f"{name}: {unmeasured}")
