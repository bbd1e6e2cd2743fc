"""Measurements of an arm's training, as the table of arms has them. Nothing else lists these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from reports.findings.study_summary import ArmSummary
from reports.wording import cost_words, words

Better = Literal["low", "high"]


def mean_of(arm: ArmSummary, column: str) -> float | None:
    """Over the arm's seeds, of a number in the frame of runs."""
    found = arm.means.get(column)
    return None if found is None else found.mean


def _speed(arm: ArmSummary) -> str:
    """Speed measured against the other arms, not in its own runs."""
    ratio = arm.comparison.costs.training if arm.comparison else None
    change = cost_words.speed_change(ratio).removesuffix(" in speed")
    return words.whole(arm.training_speed) + (f" ({change})" if change else "")


def _utilisation(arm: ArmSummary) -> str:
    """At that speed, of the products that undisturbed runs measured and of those that the data sheet names."""
    measured, published = _share(arm, "matmul_flops_per_second"), _share(arm, "published_flops_per_second")
    known = f"{published} of the data sheet's" if published != words.NONE else ""
    return f"{measured} ({known})" if known and measured != words.NONE else known or measured


def _share(arm: ArmSummary, ceiling: str) -> str:
    peak = mean_of(arm, ceiling)
    if arm.training_speed is None or not peak:
        return words.NONE
    return f"{100 * arm.training_speed * arm.flops_per_token / peak:.1f} %"


def peak_memory(arm: ArmSummary) -> str:
    """`450 MiB`; marked as unclear where it may differ from the baseline's by accident only."""
    mean = mean_of(arm, "peak_memory_bytes")
    if mean is None or arm.comparison is None:
        return words.size(mean)
    ratio = arm.comparison.costs.memory
    is_clear = ratio is not None and not cost_words.memory_change(ratio).startswith(cost_words.NO_CHANGE)
    return words.size(mean) + ("" if is_clear else " (unclear)")


ARM_MEASURES: Mapping[str, Callable[[ArmSummary], str]] = MappingProxyType(
    {
        "bits per byte": lambda arm: words.plus_minus(arm.bits_per_byte),
        "accuracy": lambda arm: words.plus_minus(arm.accuracy),
        "loss above the floor (nats/token)": lambda arm: words.plus_minus(arm.excess),
        "training speed (tokens/s)": _speed,
        "model FLOP utilisation": _utilisation,
        "peak memory": peak_memory,
    }
)
"""Cells of the table of arms, by heading."""
