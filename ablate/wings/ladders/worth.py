"""Differences in loss as effective compute: read off the curve of the baseline, where it has two budgets or more. Pure.

    f = C_base(L_base + d) / C_arm

for the difference d at the last rung and for both ends of its interval, so that f excludes 1 where d excludes zero (at
equal compute). The ends have room for what a few budgets leave open of the curve. Sizes are preferred to lengths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ablate.wings.ladders.effective_compute import Budget, worth
from ablate.wings.ladders.laws import budgets
from ablate.wings.ladders.rungs import Axis
from reports.judge.reading.collected import Collected
from reports.judge.statistics.estimates import Estimate
from reports.judge.statistics.interval import Interval

NATS = 0.01


@dataclass(frozen=True)
class Worth:
    """Effective compute of each arm at the last rung, and what `NATS` of the baseline's `loss` are worth there."""

    axis: Axis
    loss: float
    nats: Interval
    arms: Mapping[str, Interval]


def study_worth(data: Collected, differences: Mapping[str, Estimate | None]) -> Worth | None:
    """Worth of differences from the baseline, by arm. None unless the baseline has finished runs at two sizes or
    two lengths, and its loss falls between them."""
    baseline = data.study.baseline
    base_flops = data.study.baseline_arm.flops
    for axis in ("size", "length"):
        runs = data.rungs.filter(pl.col("axis").fill_null(axis) == axis, pl.col("arm") == baseline)
        curve = sorted((each for each in budgets(runs).get(baseline, []) if each.losses), key=lambda each: each.flops)
        conversion = worth(curve, NATS) if curve and curve[-1].name == data.study.ladder[-1].name else None
        if conversion is not None:
            factors = {
                arm.name: _read_off(curve, difference, base_flops / arm.flops)
                for arm in data.study.arms
                if (difference := differences.get(arm.name))
            }
            return Worth(axis, curve[-1].mean, conversion, factors)
    return None


def _read_off(curve: Sequence[Budget], difference: Estimate, times: float) -> Interval:
    """Effective compute for a difference from the last loss of a curve. times: the curve's compute over the arm's."""
    ends = [math.inf if nats is None or math.isinf(nats) else nats for nats in (difference.low, difference.high)]
    found = worth(curve, -difference.mean)
    least, most = (worth(curve, -end) if math.isfinite(end) else None for end in reversed(ends))
    assert found is not None  # a curve has a worth
    low, high = least.low if least else 0.0, most.high if most else math.inf
    return Interval(found.value * times, low * times, high * times)
