"""What an arm costs against the baseline, in words."""

from __future__ import annotations

import math

from reports.findings.shapes import Comparison, StudySummary
from reports.statistics.estimates import Estimate

SAME_MEMORY = 0.01
"""Peak memory is that of a whole process: a share of it by which two runs of one arm may well differ."""
NO_CHANGE = "no measurable change in"


def costs(comparison: Comparison, cache: bool = True) -> str:
    """`3 % slower, the same peak memory, 2× smaller KV cache`, as far as they are known."""
    speed, memory = speed_change(comparison.speed_ratio), memory_change(comparison.memory_ratio)
    if speed.startswith(NO_CHANGE) and memory.startswith(NO_CHANGE):
        speed, memory = f"{speed} or{memory.removeprefix(NO_CHANGE)}", ""
    found = (speed, memory, bytes_change(comparison.kv_ratio) if cache else "")
    return ", ".join(filter(None, found))


def speed_change(ratio: Estimate | None) -> str:
    """`3 % slower`; nothing measurable where the interval holds 1."""
    if ratio is None:
        return ""
    change = 100 * (ratio.mean - 1)
    if abs(change) < 0.1:
        return "the same speed"
    if _is_noise(ratio):
        return f"{NO_CHANGE} speed"
    return f"{_percent(change)} {'faster' if change > 0 else 'slower'}"


def memory_change(ratio: Estimate | None) -> str:
    """`12 % less peak memory`, likewise."""
    if ratio is None:
        return ""
    if abs(ratio.mean - 1) < SAME_MEMORY:
        return "the same peak memory"
    if _is_noise(ratio):
        return f"{NO_CHANGE} peak memory"
    change = 100 * (ratio.mean - 1)
    return f"{_percent(change)} {'more' if change > 0 else 'less'} peak memory"


def _percent(change: float) -> str:
    return f"{abs(change):.{0 if abs(change) >= 2 else 1}f} %"


def _is_noise(ratio: Estimate) -> bool:
    """Whether a ratio's interval holds 1."""
    return ratio.low is not None and not ratio.excludes(1)


def bytes_change(ratio: float | None) -> str:
    """Of the KV cache: `the same KV cache`, `4× smaller KV cache`."""
    if ratio is None or not ratio:
        return ""
    if math.isclose(ratio, 1, rel_tol=5e-3):
        return "the same KV cache"
    factor, word = (ratio, "larger") if ratio > 1 else (1 / ratio, "smaller")
    return f"{factor:.3g}× {word} KV cache"


def unmatched_time(summary: StudySummary) -> str:
    """What a study whose arms are not equally fast leaves open; nothing where time was matched."""
    if "seconds" in summary.study.matched:
        return ""
    ratios = {arm.name: arm.comparison.speed_ratio for arm in summary.arms if arm.comparison}
    unlike = [name for name, ratio in ratios.items() if ratio is not None and ratio.excludes(1)]
    if not unlike:
        return ""
    return (
        f"Not all arms are as fast as {summary.baseline}. Which is better at equal training time is a different"
        " question: a study with a budget in seconds answers it."
    )
