"""Numbers and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """This second, as documents have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def instant(at: datetime | None = None) -> str:
    """A moment, by default this one, where another in the same second may be earlier or later."""
    return (at or datetime.now(UTC)).isoformat(timespec="milliseconds")


def short(value: float) -> str:
    """Three digits and k, M, G or T."""
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
