"""Numbers as people read them."""

from __future__ import annotations

from pathlib import Path


def short(value: float) -> str:
    """Three digits and k, M, G or T."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def from_here(path: str) -> str:
    """A path as it is seen from the current folder, where it lies below it."""
    found = Path(path)
    return str(found.relative_to(Path.cwd())) if found.is_relative_to(Path.cwd()) else path


def clock(seconds: float) -> str:
    """`1:02:03` or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
