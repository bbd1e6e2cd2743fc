"""Human-readable numbers and times."""

from __future__ import annotations

import re
from datetime import UTC, datetime

NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([A-Za-z]*)")
"""A number and its unit."""
UNITS = {"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
UNITS |= {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}


def now() -> str:
    """The current time in UTC, ISO 8601, to the second, as documents store it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def instant(at: datetime | None = None) -> str:
    """A time, by default the current one in UTC, in ISO 8601 to the millisecond: orders events within a second."""
    return (at or datetime.now(UTC)).isoformat(timespec="milliseconds")


def short(value: float) -> str:
    """Three significant digits, with k, M, G or T."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def clock(seconds: float) -> str:
    """`1:02:03` or `2:03`; from a hundred hours on, `104 hours`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours:,} hours"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def large(count: float | None) -> str:
    """A count such as `1.56B` or `117M`; `–` for None."""
    if count is None:
        return "–"
    return f"{count / 1e9:.4g}B" if count >= 1e9 else f"{count / 1e6:.4g}M"
