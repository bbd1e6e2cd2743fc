"""What a ladder found, in words."""

from __future__ import annotations

from reports.findings.ladders import Interval, LadderArm
from reports.statistics.estimates import Estimate
from reports.wording import words


def sentence(arm: LadderArm) -> str:
    """`post: loss scales as compute to the power −0.062 (−0.069 to −0.055); its difference …`"""
    parts = [_falls(arm), _gap_trend(arm), _worth(arm)]
    said = "; ".join(part for part in parts if part)
    return f"{arm.arm}: {said or 'too few finished runs'}."


def gap(value: Estimate) -> str:
    """`−0.012 ± 0.004`."""
    digits = words.decimals(value.half_width)
    mean = words.signed(value.mean, digits)
    return mean if value.half_width is None else f"{mean} ± {value.half_width:.{digits}f}"


def _falls(arm: LadderArm) -> str:
    if arm.exponent is None:
        return ""
    power, low, high = (words.signed(-value, 3) for value in (arm.exponent.value, arm.exponent.high, arm.exponent.low))
    told = "" if arm.exponent.excludes_zero else ", so it is unclear whether it falls"
    return f"loss scales as compute to the power {power} ({low} to {high}){told}"


def _gap_trend(arm: LadderArm) -> str:
    trend = arm.trend
    if trend is None:
        return ""
    change = f"{words.signed(trend.value, 4)} nats ({words.signed(trend.low, 4)} to {words.signed(trend.high, 4)})"
    told = "" if trend.excludes_zero else ", so it is unclear whether it grows or shrinks"
    return f"its difference from the baseline changes by {change} per tenfold compute{told}"


def _worth(arm: LadderArm) -> str:
    worth = arm.speed_up
    if worth is None:
        return ""
    text = f"at the largest size it is worth {_times(worth.compute_factor)} the compute"
    if worth.effective is None or worth.throughput_ratio is None:
        return text
    speed = f"and runs at {worth.throughput_ratio:.2f}× the FLOP/s"
    return f"{text} {speed}: an effective speed-up of {_times(worth.effective)}"


def _times(factor: Interval) -> str:
    return f"{factor.value:.2f}× ({factor.low:.2f} to {factor.high:.2f})"
