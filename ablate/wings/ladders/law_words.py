"""Findings of a ladder: differences as effective compute, and sentences on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ablate.wings.ladders.effective_compute import Budget, worth
from ablate.wings.ladders.laws import LadderArm, SpeedUp, budgets
from ablate.wings.ladders.rungs import Axis
from reports.judge.reading.collected import Collected
from reports.judge.statistics.estimates import Estimate
from reports.judge.statistics.interval import Interval
from reports.judge.verdicts import ALPHA
from reports.page.wording import words

# Differences in loss as effective compute: read off the curve of the baseline, where it has two budgets or more. Pure.
#
#     f = C_base(L_base + d) / C_arm
#
# for the difference d at the last rung and for both ends of its interval, so that f excludes 1 where d excludes zero
# (at equal compute). The ends have room for what a few budgets leave open of the curve. Sizes are preferred to lengths.

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


def sentence(arm: LadderArm) -> str:
    """`post: loss falls towards 1.71 (1.52 to 1.80) as compute to the power −0.31 (−0.4 to −0.2); the difference …`"""
    said = [arm.undetermined] if arm.undetermined else []
    if arm.law is not None:
        floor, b = words.ends(arm.law.irreducible), arm.law.exponent
        power = words.ends(Interval(-b.value, -b.high, -b.low))
        said = [f"loss falls towards {floor} as compute to the power {power}"]
    if arm.trend is not None:
        by = f"{words.ends(arm.trend.slope, sign=True)} nats per tenfold compute, {words.p_value(arm.trend.p)}"
        unsure = "" if arm.trend.p < ALPHA else "cannot tell whether "
        said.append(f"{unsure}its difference from the baseline has a trend over sizes ({by})")
    if arm.speed_up is not None:
        said.append(_worth(arm.speed_up))
    return f"{arm.arm}: {'; '.join(said) or 'too few finished runs'}."


def _worth(worth: SpeedUp) -> str:
    text = f"over {worth.compute.budgets} sizes its effective compute is {words.times(worth.compute_factor)}"
    if worth.compute.trend and worth.compute.changes:
        text += f", which {worth.compute.changes} with size ({words.p_value(worth.compute.trend[1])})"
    if worth.effective is None or worth.throughput_ratio is None:
        return text
    speed = f"and it runs at {worth.throughput_ratio:.2f}× the FLOP/s"
    return f"{text}, {speed}: an effective speed-up of {words.times(worth.effective)}"


def conversion(worth: Worth | None) -> Iterator[str]:
    """`At a loss of 3.30, 0.01 nats are worth 6.9 % of compute (6.4 to 7.4 %), by pre's own curve over sizes.`"""
    if worth is not None:
        share, low, high = (100 * (each - 1) for each in (worth.nats.value, worth.nats.low, worth.nats.high))
        yield (
            f"Effective compute (×) is each difference read off the baseline's own curve over {worth.axis}s: at its "
            f"loss of {worth.loss:.2f}, {NATS} nats are worth {share:.2g} % of compute ({low:.2g} to "
            f"{high:.2g} %)."
        )
