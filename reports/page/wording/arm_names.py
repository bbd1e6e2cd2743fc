"""Names and descriptions of arms, settings and factors in readable form."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence

from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.sentences import listed
from store.documents import StudyEffect

SETTING = " · "
"""Between an arm's name and the settings of a grid's cell."""


def spelled(arm: str) -> str:
    """A grid cell's name with its settings, without their paths: `base · kv heads 2 · window 32`."""
    return _joined(_parts(arm))


def brief(arms: Sequence[str]) -> dict[str, str]:
    """`spelled` for each arm. If all names begin with the same arm, only their settings remain."""
    parts = {arm: _parts(arm) for arm in arms}
    is_grid_of_one = len(arms) > 1 and len({first for first, *_ in parts.values()}) == 1
    return {arm: _joined(found[1:] if is_grid_of_one and len(found) > 1 else found) for arm, found in parts.items()}


def without_shared(one: str, other: str) -> tuple[str, str, str]:
    """Two cells' names without the settings that they share, and those: `a · lr 0.1`, `b · lr 0.1` → a, b, lr 0.1."""
    of_one, of_other = one.split(SETTING), other.split(SETTING)
    shared = [part for part in of_one[1:] if part in of_other[1:]]
    left, right = (SETTING.join(part for part in parts if part not in shared) for parts in (of_one, of_other))
    return left, right, " and ".join(shared)


def setting_name(path: str) -> str:
    """`block.mixer.kv_heads` → `kv heads`; a symbol such as `d_model` stays."""
    tail = path.rpartition(".")[2]
    return tail if tail[1:2] == "_" else tail.replace("_", " ")


def _parts(arm: str) -> list[tuple[str, str]]:
    """(name, "") of the arm, then (path, value) of each setting."""
    return [(path, value) for path, _, value in (part.partition("=") for part in arm.split("+"))]


def _joined(parts: Sequence[tuple[str, str]]) -> str:
    return SETTING.join(f"{setting_name(path)} {value}" if value else path for path, value in parts)


SHOWN = 8
"""Most seeds that a sentence lists."""


def listed_seeds(seeds: Sequence[Hashable]) -> str:
    """Seeds as words: `seeds 3, 4 and 90 more`."""
    shown = ", ".join(map(str, seeds[:SHOWN]))
    more = f" and {len(seeds) - SHOWN:,} more" if len(seeds) > SHOWN else ""
    return f"seed{'s' if len(seeds) > 1 else ''} {shown}{more}"


MOST_NAMED = 8


def grouped(warnings: Iterable[str]) -> tuple[str, ...]:
    """`pre: a seed diverged.` and `post: a seed diverged.` as `pre and post: a seed diverged.`, in order."""
    arms: dict[str, list[str]] = {}
    for warning in warnings:
        arm, colon, said = warning.partition(": ")
        arms.setdefault(said if colon else warning, []).extend([arm] if colon else [])
    found = []
    for said, names in arms.items():
        if len(names) > MOST_NAMED:
            who = f"{listed(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} others: "
        else:
            who = f"{listed(names)}: " if names else ""
        found.append(who + said)
    return tuple(found)


BLOCK = "block."
"""Prefix of most paths, omitted from descriptions."""
LONGEST = 90

Edits = Iterable[tuple[str, str]]


def of_arm(summary: StudySummary, arm: ArmSummary) -> str:
    """`norm_placement=post`: the arm's edits that the baseline lacks; for the baseline itself, all its edits."""
    base = summary.baseline_arm
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
