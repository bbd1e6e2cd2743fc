"""Detect plans that cannot yield verdicts, and name the remedy."""

from __future__ import annotations

from ablate.planning.plan import Plan
from store.documents.length import wanting
from store.documents.shell import budget_option
from store.documents.study import UNJUDGED

FEWEST_SEEDS = 2
"""Fewest seeds from which the noise between them can be estimated."""


def is_pilot(plan: Plan) -> bool:
    """Whether the study declares itself a pilot or, if it says nothing, all arms are undertrained."""
    said = plan.study.sections.pilot
    return all(arm.length.undertrained for arm in plan.arms) if said is None else said


def unjudged(plan: Plan) -> str | None:
    """Why the study will have no verdicts; None if it may have some."""
    study, budget = plan.study, plan.study.budget
    if study.scale in UNJUDGED:
        return f"no verdicts: {study.scale} shows that a study runs, not what it finds"
    if not is_pilot(plan):
        return None
    if study.sections.pilot:
        return "a pilot: it gives estimates but no verdicts, and spends none of the question's 5 %"
    longer = wanting(arm.length for arm in plan.arms)
    more = budget_option(budget.given, budget.amount * longer)
    return f"no verdicts, as all arms are undertrained: {longer:g} × the budget would be enough ({more})"


def seeds_line(plan: Plan) -> str | None:
    """Why fewer than two seeds give no verdict; None with more, or if no arms are compared."""
    fewest = min(len(arm.runs) for arm in plan.arms)
    if len(plan.arms) < 2 or fewest >= FEWEST_SEEDS:
        return None
    return "no verdicts: estimating the noise between seeds needs at least two (--set seeds=3)"
