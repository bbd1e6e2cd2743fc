"""Detect plans that cannot yield verdicts, and name the remedy."""

from __future__ import annotations

from ablate.planning.plan import Plan
from store.documents.length import STEPS, TOKENS_PER_PARAMETER, wanting
from store.documents.shell import budget_option
from store.documents.study import UNJUDGED
from zoo.costs import cost
from zoo.errors import SpecError

FEWEST_SEEDS = 2
"""Fewest seeds from which the noise between them can be estimated."""
WIDTHS = 16
"""Number of widths that are tried, in equal steps."""


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
    smaller = that_fits(plan)
    other = f", or without more time {smaller}" if smaller else ""
    return f"no verdicts, as all arms are undertrained: {longer:g} × the budget would be enough ({more}){other}"


def that_fits(plan: Plan) -> str:
    """Options for the largest model, and then the largest batch, that would be trained for long enough in the same
    budget: `--set base.d_model=24 --set train.batch=4`. Empty if there are none."""
    arm = max(plan.arms, key=lambda arm: arm.length.wanting)
    spec, train = arm.spec, arm.train
    if plan.study.budget.given == "tokens_per_parameter" or arm.length.after_checkpoint:
        return ""
    for width in dict.fromkeys(spec.d_model * part // WIDTHS for part in range(WIDTHS, 0, -1)):
        try:
            costs = cost(spec.edit({"d_model": width}), train.context)
        except SpecError:  # a width that the heads do not divide
            continue
        cheaper = arm.cost.flops_per_token / costs.flops_per_token if plan.study.budget.kind == "flops" else 1.0
        tokens = arm.tokens * cheaper
        batch = min(train.batch, int(tokens / (STEPS * train.context)))
        if batch and tokens >= TOKENS_PER_PARAMETER * costs.params_inside:
            return " ".join(
                [f"--set base.d_model={width}"] * (width < spec.d_model)
                + [f"--set train.batch={batch}"] * (batch < train.batch)
            )
    return ""


def seeds_line(plan: Plan) -> str | None:
    """Why fewer than two seeds give no verdict; None with more, or if no arms are compared."""
    fewest = min(len(arm.runs) for arm in plan.arms)
    if len(plan.arms) < 2 or fewest >= FEWEST_SEEDS:
        return None
    return "no verdicts: estimating the noise between seeds needs at least two (--set seeds=3)"
