"""`claim/<token>.json`: who works on a run. One line, written again at every beat."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ablate.store.documents._document import Part, Seconds


class Count(Part):
    """Progress of a part of a run: `tasks 120/400`."""

    what: str
    """Name of what is counted: an evaluation's items, or the parts of a measurement."""
    done: Annotated[int, Field(ge=0)]
    """Number done, of `total`."""
    total: Annotated[int, Field(ge=1)]
    """Total number."""

    def __str__(self) -> str:
        return f"{self.what} {self.done}/{self.total}"


class ClaimRecord(Part):
    """A process that alone may write to the folder around `claim/`, for as long as it beats."""

    token: str
    """Identifier that no other claim has."""
    host: tuple[str, str, str]
    """The machine, its start, and its space of process numbers."""
    pid: Annotated[int, Field(ge=1)]
    """The process."""
    started: str | None
    """When that process began, so that another of the same number is not taken for it; null where unknown."""
    beat_seconds: Seconds
    """Seconds between two beats, which show that it lives."""
    beat: int
    """Number of beats so far."""
    count: Count | None = None
    """Progress of its measurement or evaluation."""
