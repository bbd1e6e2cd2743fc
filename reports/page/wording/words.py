"""Numbers in words. Every number has its unit; ± is half a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import UTC, datetime

from reports.judge.findings.comparison import Comparison
from reports.judge.noise.power import MOST_SEEDS
from reports.judge.statistics.estimates import Estimate, Interval
from reports.page.wording import table

NONE = table.NONE


def score(value: float) -> str:
    """Score to four decimals, or to four digits if very large, as are perplexities of barely trained models."""
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}"


def decimals(scale: float | None, most: int = 4) -> int:
    """Decimals that show two significant digits of `scale`; three if it is unknown or infinite."""
    if not scale or math.isinf(scale):
        return 3
    return min(most, max(0, 1 - math.floor(math.log10(abs(scale)))))


def signed(value: float, digits: int) -> str:
    """`+0.012`, `−0.012`, `0.000`, `−∞`: with a true minus sign, and no sign on a value that rounds to zero."""
    text = f"{abs(value):.{digits}f}"
    sign = "" if float(text) == 0 else "+" if value > 0 else "−"
    return sign + text.replace("inf", "∞")


def plus_minus(value: Estimate | None) -> str:
    """`2.310 ± 0.012`, or the bare mean if there is no interval."""
    if value is None:
        return NONE
    if value.half_width is None:
        return f"{value.mean:.3f}"
    digits = decimals(value.half_width)
    return f"{value.mean:.{digits}f} ± {value.half_width:.{digits}f}"


def count(value: float | None) -> str:
    """`5.80 M`: three significant digits with a decimal prefix."""
    if value is None:
        return NONE
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{_three(value / scale)} {unit}"
    return _three(value)


def large(value: float | None) -> str:
    """`1.00 × 10¹³`, for FLOPs."""
    if value is None:
        return NONE
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}"


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def size(value: float | None) -> str:
    """Bytes with a binary prefix: `1.50 MiB`."""
    if value is None:
        return NONE
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= scale:
            return f"{_three(value / scale)} {unit}"
    return f"{value:.0f} B"


def seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:,.1f} s" if value < 1000 else f"{value:,.0f} s"


def moment(text: str) -> str:
    """`2026-01-01 00:00 UTC`, from ISO 8601."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def three_digits(value: float) -> str:
    """`0.123`, `1,234`: three digits, or the whole part if it has more."""
    return whole(value) if value >= 100 else f"{value:.3g}"


def whole(value: float | None) -> str:
    """`12,345`."""
    return NONE if value is None else f"{value:,.0f}"


def fixed(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


CERTAIN = 0.99
"""p-values above this are shown as `p > 0.99`: corrections for many comparisons raise p to 1."""


def p_value(p: float | None) -> str:
    if p is None:
        return NONE
    if p > CERTAIN:
        return f"p > {CERTAIN:g}"
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def _three(value: float) -> str:
    """Three significant digits without an exponent."""
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(digits, 3)}f}"


def difference(comparison: Comparison) -> str:
    """`−0.012 ± 0.004 nats`, or `−0.012 (−0.021 to 0.000) nats` if a verdict cut the interval at zero."""
    return NONE if comparison.difference is None else interval(comparison.difference)


def interval(value: Estimate) -> str:
    """A difference in nats with its interval, either end of which may be infinite: `+0.125 (−∞ to +0.224) nats`."""
    digits = decimals(value.half_width)
    mean = signed(value.mean, digits)
    if not value.half_width or value.low is None or value.high is None:
        return f"{mean} nats"
    if math.isfinite(value.half_width) and math.isclose(value.high - value.mean, value.mean - value.low, rel_tol=1e-3):
        return f"{mean} ± {value.half_width:.{digits}f} nats"
    return f"{mean} ({signed(value.low, digits)} to {signed(value.high, digits)}) nats"


def ends(value: Interval, *, sign: bool = False) -> str:
    """`0.31 (0.22 to 0.4)`, to two digits of its half width. sign: whether to show a plus sign."""
    digits = decimals(value.half_width)
    said = [signed(each, digits) for each in (value.value, value.low, value.high)]
    middle, low, high = said if sign else (each.removeprefix("+") for each in said)
    return f"{middle} ({low} to {high})"


def times(factor: Interval) -> str:
    """`×1.08 (1.01 to 1.16)`; `×1.62 (at least 1.31)` if an end is beyond what was measured."""
    low, high = factor.low > 0, math.isfinite(factor.high)
    digits = 2 if factor.value >= 0.1 else 3
    said = {
        (True, True): f" ({factor.low:.{digits}f} to {factor.high:.{digits}f})",
        (True, False): f" (at least {factor.low:.{digits}f})",
        (False, True): f" (at most {factor.high:.{digits}f})",
        (False, False): " (no bounds)",
    }
    return f"×{factor.value:.{digits}f}{said[low, high]}"


def detectable(found: Interval) -> str:
    """`0.036 (0.019 to 0.23)`: the detectable difference, with its uncertainty."""
    value, low, high = (f"{each:.{decimals(each)}f}" for each in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"


def more_seeds(needed: int | None) -> str:
    if needed is None:
        return f"even {MOST_SEEDS:,} more seeds would probably not settle it"
    return f"{needed} more seed{'' if needed == 1 else 's'} would probably settle it"


def seed_count(number: int) -> str:
    return f"{number} seed{'' if number == 1 else 's'}"


def nats(value: float) -> str:
    return f"{value:.{decimals(value)}f} nats"


def in_groups(tasks: Collection[str]) -> str:
    """Note that tasks of groups appear only in the table."""
    return f" The {len(tasks)} tasks of groups are in the table only." if tasks else ""
