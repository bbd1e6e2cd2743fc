"""Description of an arm or a factor in the terms of the model, since an arm's name is the author's choice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from reports.judge.findings.study_summary import ArmSummary, StudySummary
from store.documents import StudyEffect

BLOCK = "block."
"""Prefix of most paths, omitted from descriptions."""
LONGEST = 90

Edits = Iterable[tuple[str, str]]


def of_arm(summary: StudySummary, arm: ArmSummary) -> str:
    """`norm_placement=post`: the arm's edits that the baseline lacks; for the baseline itself, all its edits."""
    base = next(each for each in summary.arms if each.name == summary.baseline)
    shared = set() if arm is base else set(base.edits)
    return _said(edit for edit in arm.edits if edit not in shared)


def of_effect(summary: StudySummary, effect: StudyEffect) -> str:
    """Edits shared by all runs with a factor and by no other run; empty for an interaction, which is no edit."""
    edits = {arm.name: dict(arm.edits) for arm in summary.arms}
    having = [edits[name].items() for name in effect.arms]
    others = {edit for name, found in edits.items() if name not in effect.arms for edit in found.items()}
    return _said(edit for edit in having[0] if all(edit in each for each in having) and edit not in others)


def _said(edits: Edits) -> str:
    return ", ".join(f"{path.removeprefix(BLOCK)}={value_of(json.loads(value))}" for path, value in edits)


def value_of(value: object) -> str:
    """`gelu(d_ff=4x)`, `[q, k, v]`, `0.024`."""
    if isinstance(value, Mapping):
        rest = ", ".join(f"{name}={value_of(each)}" for name, each in value.items() if name != "kind")
        return f"{value.get('kind', '')}({rest})" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(value_of, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def short(gloss: str) -> str:
    """A description, shortened to at most `LONGEST` characters."""
    return gloss if len(gloss) <= LONGEST else f"{gloss[: LONGEST - 1].rstrip(' ,')}…"
