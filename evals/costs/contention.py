"""Time that work waited for a processor in use by others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SCHEDSTAT = Path("/proc/thread-self/schedstat")


@dataclass
class Waiting:
    """Filled when the `with` block ends. `share` is None where the system does not say.

    share: of the time in which this thread was ready to work, that in which it had no processor.
    """

    share: float | None = None


@contextmanager
def waiting() -> Iterator[Waiting]:
    """Share of the block that this thread waits. Linux counts nanoseconds on a processor, and ready without one."""
    found, before = Waiting(), _counted()
    yield found
    after = _counted()
    if before is not None and after is not None:
        worked, waited = (end - start for start, end in zip(before, after, strict=True))
        found.share = waited / (worked + waited) if worked + waited else 0.0


def _counted() -> tuple[int, int] | None:
    try:
        worked, waited, _ = map(int, SCHEDSTAT.read_text(encoding="utf-8").split())
    except (OSError, ValueError):  # another system, or a kernel that does not count
        return None
    return worked, waited
