"""The rungs of a planned ladder: checks that they are comparable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from ablate.planning.campaign import Axis, axis
from ablate.planning.plan import Plan
from ablate.study.complaints import Problem, StudyError
from ablate.study.study import Study

ORDER: dict[Axis, str] = {"size": "list sizes from small to large", "length": "list lengths from short to long"}


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
    if len(rungs) > 1:
        yield from _of_one_size(rungs[0], last)


def _of_one_size(first: Study, last: Study) -> Iterator[Problem]:
    """Problems of models that keep their size, although the ladder has several: sizes of the study's own base, or of
    an arm, override those of a rung."""
    before, baseline = first.arms[0].model, last.arms[0]
    remedy = f"give its sizes under scales.{last.scale}, by rung or as ratios"
    own_ladder = any(origin.target[:1] == ("ladder",) for origin in last.origins.own)
    if before == baseline.model and first.budget == last.budget and not own_ladder:
        reason = f"rungs {first.rung} and {last.rung} have the same model and budget"
        yield last.origins.problem(("base",), f"{reason}, since its own size overrides theirs: {remedy}", at_key=True)
    for small, arm in zip(first.arms, last.arms, strict=True):
        keeps = arm.model == small.model and before != baseline.model
        if keeps or (arm.model.d_model == small.model.d_model and before.d_model != baseline.model.d_model):
            reason = f"keeps its size from rung {first.rung} to {last.rung}, while {baseline.name} grows"
            yield last.origins.problem(arm.target, f"{reason}: {remedy}", at_key=True)


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
