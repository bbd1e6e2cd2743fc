"""Time that a thread waited for a processor that other programs used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SCHEDSTAT = Path("/proc/thread-self/schedstat")


@dataclass
class Waiting:
    """Filled when the `with` block ends.

    share: waiting time over the time in which this thread was ready to run; None if the system does not report it.
    """

    share: float | None = None


@contextmanager
def waiting() -> Iterator[Waiting]:
    """Share of the block in which this thread waits. Linux counts nanoseconds on a processor, and waiting for one."""
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
