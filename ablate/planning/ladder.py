"""What the sizes of a ladder must have in common, so that their losses lie on one curve."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ablate.planning.plan import Plan
from ablate.study.problems import Problem, StudyError
from ablate.study.study import Study


def refuse_unlike(sizes: Sequence[Study], plan: Callable[[Study], Plan]) -> None:
    """Raises StudyError where sizes, from small to large, are no ladder."""
    problems = list(_unlike(sizes)) or list(_falling(sizes, plan))
    if problems:
        raise StudyError(problems)


def _unlike(sizes: Sequence[Study]) -> Iterator[Problem]:
    last = sizes[-1]
    for size in sizes[:-1]:
        if size.budget.matched != last.budget.matched:
            unlike = f"size {size.rung} matches {size.budget.matched}, and size {last.rung} {last.budget.matched}"
            yield size.origins.problem(("budget", size.budget.kind), unlike)
        if size.train.context != last.train.context:
            reason = "losses at different contexts are not comparable: all sizes must share one context"
            yield size.origins.problem(("train", "context"), reason, at_key=True)


def _falling(sizes: Sequence[Study], plan: Callable[[Study], Plan]) -> Iterator[Problem]:
    """Sizes that spend no more compute than the one before: there is no curve through them.

    How much a budget in seconds buys is known only when steps have been timed with the settings that tuning chooses.
    """
    if len(sizes) < 2 or sizes[0].budget.seconds is not None:
        return
    flops = [plan(size).arms[0].flops for size in sizes]
    for before, after, size in zip(flops, flops[1:], sizes[1:], strict=False):
        if after <= before:
            reason = f"{after:.3g} FLOPs are no more than the previous {before:.3g}: list sizes from small to large"
            yield size.origins.problem(("ladder", str(size.rung)), reason)
