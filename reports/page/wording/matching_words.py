"""Quantities matched across arms, in words, with the arms that deviate."""

from __future__ import annotations

import json

from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.sentences import listed

MATCHED = {"flops": "FLOPs", "seconds": "training time"}


def matched(summary: StudySummary) -> str:
    return f"at equal {' and '.join(MATCHED.get(part, part) for part in summary.study.matched.split(' and '))}"


def terms(summary: StudySummary, arm: ArmSummary) -> str:
    """`at equal FLOPs`, or the tokens that an arm started from another spent beyond that arm's training."""
    source = dict(arm.edits).get("start.arm")
    if source is None:
        return matched(summary)
    base = next(other for other in summary.arms if other.name == summary.baseline)
    share = 100 * arm.budget.tokens / base.budget.tokens
    return f"after {share:.3g} % of the baseline’s tokens, on top of the training of {json.loads(source)}"


def but_for(summary: StudySummary) -> str:
    """Exception for the arms to which `matched` does not apply."""
    found = [arm.name for arm in summary.arms if "start.arm" in dict(arm.edits)]
    return f", except {listed(found)}, which started from another arm" if found else ""


def continued(summary: StudySummary) -> str:
    """`continuing from trained` if all compared arms start from one arm; else empty."""
    sources = {dict(arm.edits).get("start.arm") for arm in summary.arms if arm.name != summary.baseline}
    (source,) = sources if len(sources) == 1 else (None,)
    return f"continuing from {json.loads(source)}" if source else ""
