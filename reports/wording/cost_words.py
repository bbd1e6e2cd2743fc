"""What an arm costs against the baseline, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from reports.findings.disturbed import ALONE, STEADY
from reports.findings.overhead import LITTLE
from reports.findings.shapes import ArmSummary, Comparison, StudySummary
from reports.findings.verdicts import MEASURED_ONCE
from reports.statistics.estimates import Estimate
from reports.wording.listing import listed

SAME_MEMORY = 0.01
"""Peak memory is that of a whole process: a share of it by which two runs of one arm may well differ."""
SAME = "the same"
NO_CHANGE = "no measurable change in"
BESIDE = "†"
UNKNOWN_SPEED = f"training speed not known {BESIDE}"
COUNTED = ("FLOPs", "parameters")
"""Costs of which there are fewer, not less."""
TIME = " time per token"
"""What measured times are called, after what takes them."""
FACTORS = 1.5
"""A change from so large a factor on is said as one."""


def costs(comparison: Comparison) -> str:
    """`training 3 % slower, 2× smaller KV cache, no measurable change in decoding speed or peak memory`, as far as they
    are known. What is the same goes without saying."""
    found = _changes(comparison)
    noise = [said.removeprefix(NO_CHANGE) for said in found if said.startswith(NO_CHANGE)]
    last = [f"{NO_CHANGE}{' or'.join(noise)}"] if noise else []
    return ", ".join([*_clear(found), *last, *([] if comparison.alone else [UNKNOWN_SPEED])])


def clear_costs(comparison: Comparison) -> str:
    """`training 3 % slower, 2× smaller KV cache`: those that are not noise, for a headline; nothing of none where the
    training speed is not known."""
    nothing = f"{NO_CHANGE} cost" if comparison.alone and _changes(comparison) else ""
    return sure_costs(comparison) or nothing


def sure_costs(comparison: Comparison) -> str:
    """Those that are not noise."""
    return ", ".join(_clear(_changes(comparison)))


def _changes(comparison: Comparison) -> list[str]:
    training = comparison.speed_ratio if comparison.alone else None
    speeds = {"training": training, "decoding": comparison.decode_ratio}
    changes = [speed_change(ratio, what) for what, ratio in speeds.items()]
    found = [*changes, memory_change(comparison.memory_ratio), bytes_change(comparison.kv_ratio, comparison.kv_context)]
    return list(filter(None, found))


def _clear(changes: Iterable[str]) -> list[str]:
    return [said for said in changes if not said.startswith((NO_CHANGE, SAME))]


def speed_change(ratio: Estimate | None, what: str = "") -> str:
    """`3 % slower`, or `training 3 % slower` of `what`; nothing measurable where it may be noise."""
    if ratio is None:
        return ""
    change, speed = 100 * (ratio.mean - 1), f"{what} speed".strip()
    if abs(change) < 0.1:
        return f"{SAME} {speed}"
    if _is_noise(ratio):
        return f"{NO_CHANGE} {speed}"
    return f"{what} {_percent(change)} {'faster' if change > 0 else 'slower'}".strip()


def change_of(cost: str, ratio: Estimate) -> str:
    """`8× smaller KV cache at 512 tokens`; a time is said as the speed that headlines give, `training 3 % slower`."""
    what, is_time, where = cost.partition(TIME)
    if is_time:
        return speed_change(_inverse(ratio), what) + where
    if _is_noise(ratio) or (cost.startswith("peak memory") and abs(ratio.mean - 1) < SAME_MEMORY):
        return f"{NO_CHANGE} {cost}"
    factor, word = (ratio.mean, "larger") if ratio.mean > 1 else (1 / ratio.mean, "smaller")
    if factor >= FACTORS:
        return f"{factor:.3g}× {word} {cost}"
    change = 100 * (ratio.mean - 1)
    return f"{_percent(change)} {'more' if change > 0 else 'fewer' if cost.startswith(COUNTED) else 'less'} {cost}"


def _inverse(ratio: Estimate) -> Estimate:
    low, high = (None if end is None else 1 / end for end in (ratio.high, ratio.low))
    return replace(ratio, mean=1 / ratio.mean, low=low, high=high, sd=None)


def memory_change(ratio: Estimate | None) -> str:
    """`12 % less peak memory`, likewise."""
    if ratio is None:
        return ""
    if abs(ratio.mean - 1) < SAME_MEMORY:
        return f"{SAME} peak memory"
    if _is_noise(ratio):
        return f"{NO_CHANGE} peak memory"
    change = 100 * (ratio.mean - 1)
    return f"{_percent(change)} {'more' if change > 0 else 'less'} peak memory"


def _percent(change: float) -> str:
    return f"{abs(change):.{0 if abs(change) >= 2 else 1}f} %"


def _is_noise(ratio: Estimate) -> bool:
    """Whether a ratio's interval holds 1; of a single run, also whether it is near 1. What is declared is exact."""
    exact = ratio.low is not None and ratio.low == ratio.high
    if len(ratio.values) == 1 and not exact and abs(math.log(ratio.mean)) < math.log1p(MEASURED_ONCE):
        return True
    return ratio.low is not None and not ratio.excludes(1)


def bytes_change(ratio: float | None, context: int | None = None) -> str:
    """Of the KV cache: `the same KV cache`, `4× smaller KV cache`, `32× smaller KV cache at 512 tokens`."""
    if ratio is None or not ratio:
        return ""
    if math.isclose(ratio, 1, rel_tol=5e-3):
        return f"{SAME} KV cache"
    factor, word = (ratio, "larger") if ratio > 1 else (1 / ratio, "smaller")
    return f"{factor:.3g}× {word} KV cache" + (f" at {context:,} tokens" if context else "")


def beside_mark(arm: ArmSummary) -> str:
    """What follows a speed that was not measured alone."""
    return f" {BESIDE}" if arm.disturbance else ""


def measured_beside(summary: StudySummary) -> str:
    """What the mark means; nothing where there is none."""
    reasons = _disturbances(summary)
    return f"{BESIDE} Not measured alone, so that the speed is not the arm's own: {reasons}." if reasons else ""


def _disturbances(summary: StudySummary) -> str:
    marked = [arm.disturbance for arm in summary.arms if arm.disturbance]
    if not marked:
        return ""
    waited, shared, apart = (max(getattr(each, name) for each in marked) for name in ("waited", "shared", "apart"))
    reasons = [f"its runs waited for a processor for up to {100 * waited:.0f} % of their training"] * (waited >= ALONE)
    reasons += [f"up to {shared + 1:.0f} runs shared a GPU"] * (shared > 0)
    reasons += [f"seeds of one arm, which compute the same, differ up to {apart:.1f}× in speed"] * (apart > STEADY)
    return ", and ".join(reasons)


def overhead(slow: Sequence[str], arms: int) -> str:
    """Of so many arms, whose decoding is bound by overhead; nothing where that of none is."""
    if not slow:
        return ""
    who = "every arm" if len(slow) == arms else listed(slow)
    return (
        f"Decoding one sequence, {who} used less than {100 * LITTLE:.0f} % of the memory's bandwidth: the time is"
        " mostly that of issuing operations, and says little of larger models."
    )


def unmatched_time(summary: StudySummary) -> str:
    """What a study whose arms are not equally fast leaves open; nothing where time was matched."""
    if "seconds" in summary.study.matched:
        return ""
    ratios = {arm.name: arm.comparison.speed_ratio for arm in summary.arms if arm.comparison and arm.comparison.alone}
    unlike = [name for name, ratio in ratios.items() if ratio is not None and ratio.excludes(1)]
    if not unlike:
        return ""
    return (
        f"Not all arms are as fast as {summary.baseline}. Which is better at equal training time is a different"
        " question: a study with a budget in seconds answers it."
    )
