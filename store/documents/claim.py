"""`claim/<token>.json`: the process that works on a run. One line, rewritten at every heartbeat."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from store.documents._document import Part, Seconds


class Count(Part):
    """Progress of a part of a run: `tasks 120/400`."""

    what: str
    """Name of the units counted: an evaluation's items, or the parts of a measurement."""
    done: Annotated[int, Field(ge=0)]
    """Number done, of `total`."""
    total: Annotated[int, Field(ge=1)]
    """Total number."""

    def __str__(self) -> str:
        return f"{self.what} {self.done}/{self.total}"


class ClaimRecord(Part):
    """The process with exclusive write access to the folder around `claim/`, as long as its heartbeat goes on."""

    token: str
    """Unique identifier of the claim."""
    host: tuple[str, str, str]
    """The machine, its boot id, and its PID namespace."""
    pid: Annotated[int, Field(ge=1)]
    """Process id."""
    started: str | None
    """Start time of that process, so that a later process with the same id is not taken for it; null if unknown."""
    beat_seconds: Annotated[Seconds, Field(le=60)]
    """Interval between heartbeats."""
    beat: int
    """Number of heartbeats so far."""
    count: Count | None = None
    """Progress of its measurement or evaluation."""
