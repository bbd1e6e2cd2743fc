"""Studies that will have no verdicts as they are planned, and what would give them some."""

from __future__ import annotations

import math

from ablate.planning.plan import Plan
from ablate.store.documents.study import UNJUDGED

FEWEST_SEEDS = 2
"""Seeds below which their noise is unknown."""


def unjudged(plan: Plan) -> str | None:
    """Why nothing will be judged; None where something may be."""
    study, pilot = plan.study, plan.study.sections.pilot
    if study.scale in UNJUDGED:
        return f"no verdicts: {study.scale} shows that a study runs, not what it finds"
    if pilot:
        return "a pilot: it gives estimates and no verdicts, and spends no look at the question"
    if pilot is None and all(arm.length.undertrained for arm in plan.arms):
        longer = math.ceil(10 * max(arm.length.wanting for arm in plan.arms)) / 10
        budget = f"--set budget.{study.budget.given}={float(f'{study.budget.amount * longer:.3g}'):g}"
        return f"no verdicts, as all arms are undertrained: {longer:g} × the budget trains for long enough ({budget})"
    return None


def seeds_line(plan: Plan) -> str | None:
    """Why so few seeds give no verdict; None of more, or where arms are not compared."""
    fewest = min(len(arm.runs) for arm in plan.arms)
    if len(plan.arms) < 2 or fewest >= FEWEST_SEEDS:
        return None
    return "no verdicts: how far seeds scatter takes two of them to know (--set seeds=3)"
