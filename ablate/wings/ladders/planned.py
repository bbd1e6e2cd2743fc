"""The rungs of a planned ladder: checks that they are comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from ablate.planning.campaign import Axis, axis
from ablate.planning.plan import Plan
from ablate.study.complaints import Problem, StudyError
from ablate.study.study import Study

ORDER: dict[Axis, str] = {"size": "list sizes from small to large", "length": "list lengths from short to long"}


def check(study: Study) -> None:
    """Raise StudyError if a model keeps its size while the baseline's grows from rung to rung: sizes of the study's own
    base, or of an arm, override those of a rung."""
    smallest, baseline = (*study.smaller, study)[0], study.arms[0]
    for arm, small in zip(study.arms, smallest.arms, strict=True):
        before = smallest.arms[0].model
        keeps = arm.model == small.model and before != baseline.model
        if keeps or (arm.model.d_model == small.model.d_model and before.d_model != baseline.model.d_model):
            reason = f"keeps its size from rung {smallest.rung} to {study.rung}, while {baseline.name} grows"
            remedy = f"give its sizes under scales.{study.scale}, by rung or as ratios"
            raise StudyError([study.origins.problem(arm.target, f"{reason}: {remedy}", at_key=True)])
    same = next((r for r in study.smaller if r.arms[0].model == baseline.model and r.budget == study.budget), None)
    if same is not None:
        reason = f"rungs {same.rung} and {study.rung} have the same model and budget"
        raise study.error("base", f"{reason}: the base's own size overrides that of the rungs")


def refuse_unlike(rungs: Sequence[Study], plan: Callable[[Study], Plan]) -> None:
    """Raise StudyError if the rungs do not form a ladder. Arms are compared on the last rung."""
    problems = list(_unlike(rungs)) or list(_falling(rungs, plan))
    if problems:
        raise StudyError(problems)


def _unlike(rungs: Sequence[Study]) -> Iterator[Problem]:
    last = rungs[-1]
    for rung in rungs[:-1]:
        if rung.budget.matched != last.budget.matched:
            unlike = f"rung {rung.rung} matches {rung.budget.matched}, but rung {last.rung} {last.budget.matched}"
            yield rung.origins.problem(("budget", rung.budget.kind), unlike)
        if rung.train.context != last.train.context:
            reason = "losses at different contexts are not comparable: all rungs must share one context"
            yield rung.origins.problem(("train", "context"), reason, at_key=True)


def _falling(rungs: Sequence[Study], plan: Callable[[Study], Plan]) -> Iterator[Problem]:
    """Problems of rungs that spend no more compute than the one before them on the same axis.

    Budgets in seconds are not checked: their compute is known only once steps are timed with the tuned settings.
    """
    last = rungs[-1]
    if len(rungs) < 2 or last.budget.seconds is not None:
        return
    flops = {rung.rung: plan(rung).arms[0].flops for rung in rungs}
    for kind, order in ORDER.items():
        for before, rung in pairwise([*(rung for rung in rungs if axis(rung, last) == kind), last]):
            spent, less = flops[rung.rung], flops[before.rung]
            if spent <= less:
                reason = f"spends {spent:.3g} FLOPs, not more than {before.rung} ({less:.3g}): {order}"
                yield rung.origins.problem(("ladder", str(rung.rung)), reason)
