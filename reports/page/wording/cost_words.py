"""Costs of an arm against the baseline, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from reports.judge.findings.comparison import ArmCosts
from reports.judge.findings.study_summary import StudySummary
from reports.judge.sentences import listed
from reports.judge.statistics.estimates import Estimate
from reports.page.sections._serving import LITTLE

SAME_MEMORY = 0.02
"""Relative difference of peak memory below which it counts as equal: it is measured for a whole process, and two runs
of one arm may differ by as much."""
SAME = "the same"
NO_CHANGE = "no measurable change in"
UNKNOWN_SPEED = "speeds not measured"
COUNTED = ("FLOPs", "total parameters")
"""Costs that are counted: `fewer`, not `less`."""
TIME = " time per token"
"""Suffix of the names of measured times."""
FACTORS = 1.5
"""Smallest factor that is stated as a factor rather than in per cent."""


def costs(found: ArmCosts) -> str:
    """`training 3 % slower, 2× smaller KV cache, no measurable change in decoding speed or peak memory`, as far as
    known. Equal costs are omitted."""
    unsure = _joined(_changes(found), NO_CHANGE, " or")
    return ", ".join(filter(None, [*sure_changes(found), unsure, unknown_speed(found)]))


def clear_costs(found: ArmCosts) -> str:
    """`training 3 % slower, 2× smaller KV cache`: clear changes, for a headline. Without any, `no measurable change in
    cost`, or the costs that were measured, if some were not."""
    if not all_measured(found):
        return sure_costs(found) or alike(found)
    return sure_costs(found) or f"{NO_CHANGE} cost"


def all_measured(found: ArmCosts) -> bool:
    """Whether speeds and memory are known, so that together they may be called the cost."""
    return not unknown_speed(found) and found.training is not None and found.memory is not None


def unknown_speed(found: ArmCosts) -> str:
    """`speeds not measured`, whether or not the study asked for them; empty if they are known, or if no cost is."""
    is_unknown = found.unmeasured is not None or (found.training is None and bool(_changes(found)))
    return UNKNOWN_SPEED if is_unknown else ""


def alike(found: ArmCosts) -> str:
    """`no measurable change in training speed or peak memory`: measured costs that do not clearly differ."""
    changes = _changes(replace(found, kv_ratio=None))
    return ", ".join(filter(None, [_joined(changes, SAME, " and"), _joined(changes, NO_CHANGE, " or")]))


def _joined(changes: Iterable[str], begin: str, conjunction: str) -> str:
    """The changes that start with `begin`, merged into one phrase."""
    rest = [said.removeprefix(begin) for said in changes if said.startswith(begin)]
    return f"{begin}{conjunction.join(rest)}" if rest else ""


def sure_costs(found: ArmCosts) -> str:
    """The clear changes, joined."""
    return ", ".join(sure_changes(found))


def sure_changes(found: ArmCosts) -> list[str]:
    """The clear changes, one by one."""
    return [said for said in _changes(found) if not said.startswith((NO_CHANGE, SAME))]


def _changes(found: ArmCosts) -> list[str]:
    speeds = {"training": found.training, "decoding": found.decoding}
    changes = [speed_change(ratio, what) for what, ratio in speeds.items()]
    return list(filter(None, [*changes, memory_change(found.memory), bytes_change(found.kv_ratio, found.kv_context)]))


def speed_change(ratio: Estimate | None, what: str = "") -> str:
    """`3 % slower`, or `training 3 % slower` if `what` is training; `no measurable change in …` if it may be noise."""
    if ratio is None:
        return ""
    change, speed = 100 * (ratio.mean - 1), f"{what} speed".strip()
    if abs(change) < 0.1:
        return f"{SAME} {speed}"
    if not ratio.excludes(1):
        return f"{NO_CHANGE} {speed}"
    return f"{what} {_percent(change)} {'faster' if change > 0 else 'slower'}".strip()


def change_of(cost: str, ratio: Estimate) -> str:
    """`8× smaller KV cache at 512 tokens`. Times become the speeds that headlines use: `training 3 % slower`."""
    what, is_time, where = cost.partition(TIME)
    if is_time:
        return speed_change(ratio.inverse(), what) + where
    if not ratio.excludes(1) or (cost.startswith("peak memory") and abs(ratio.mean - 1) < SAME_MEMORY):
        return f"{NO_CHANGE} {cost}"
    factor, word = (ratio.mean, "larger") if ratio.mean > 1 else (1 / ratio.mean, "smaller")
    if factor >= FACTORS:
        return f"{factor:.3g}× {word} {cost}"
    change = 100 * (ratio.mean - 1)
    return f"{_percent(change)} {'more' if change > 0 else 'fewer' if cost.startswith(COUNTED) else 'less'} {cost}"


def memory_change(ratio: Estimate | None) -> str:
    """`12 % less peak memory`; `the same` or `no measurable change in` if it is not clear."""
    if ratio is None:
        return ""
    if abs(ratio.mean - 1) < SAME_MEMORY:
        return f"{SAME} peak memory"
    if not ratio.excludes(1):
        return f"{NO_CHANGE} peak memory"
    change = 100 * (ratio.mean - 1)
    return f"{_percent(change)} {'more' if change > 0 else 'less'} peak memory"


def _percent(change: float) -> str:
    return f"{abs(change):.{0 if abs(change) >= 2 else 1}f} %"


def bytes_change(ratio: float | None, context: int | None = None) -> str:
    """Change of the KV cache: `the same KV cache`, `4× smaller KV cache`, `32× smaller KV cache at 512 tokens`."""
    if ratio is None or not ratio:
        return ""
    if math.isclose(ratio, 1, rel_tol=5e-3):
        return f"{SAME} KV cache"
    factor, word = (ratio, "larger") if ratio > 1 else (1 / ratio, "smaller")
    return f"{factor:.3g}× {word} KV cache" + (f" at {context:,} tokens" if context else "")


def unmeasured(summary: StudySummary) -> str:
    """Why speeds are unknown, with the command that measures them where one can; empty if they are known or not asked
    for."""
    known = [each.comparison.costs for each in summary.judgements]
    cannot: dict[tuple[str, str], list[str]] = {}
    for costs in known:
        for work, (arm, why) in costs.untimed.items():
            cannot.setdefault((work, why), []).append(arm)
    said = [
        f"{work.capitalize()} speed of {listed(list(dict.fromkeys(arms)))} not measured: {why}."
        for (work, why), arms in cannot.items()
    ]
    if summary.unmeasured is not None:
        some = any(costs.training or costs.decoding for costs in known)
        said.append(
            f"{'Some speeds' if some else 'Speeds'} not measured: {summary.unmeasured}. "
            f"`{summary.command()}`, with nothing else running, measures them without training again."
        )
    return " ".join(said)


def overhead(slow: Sequence[str], arms: int) -> str:
    """Sentence on the `slow` among `arms` arms, whose decoding is bound by overhead; empty if none is."""
    if not slow:
        return ""
    who = "every arm" if len(slow) == arms else listed(slow)
    return (
        f"Decoding one sequence, {who} used less than {100 * LITTLE:.0f} % of the memory bandwidth: decoding is"
        " launch-bound (most time goes into issuing operations), so its speed does not carry over to larger models."
    )


def unmatched_time(summary: StudySummary) -> str:
    """Question that a study of arms of unequal speed leaves open; empty if time was matched."""
    if "seconds" in summary.study.matched:
        return ""
    ratios = {arm.name: arm.comparison.costs.training for arm in summary.arms if arm.comparison}
    unlike = [name for name, ratio in ratios.items() if ratio is not None and ratio.excludes(1)]
    if not unlike:
        return ""
    return (
        f"Some arms train faster or slower than {summary.baseline}. Which is better at equal training time is another"
        " question: a study with a budget in seconds answers it."
    )
