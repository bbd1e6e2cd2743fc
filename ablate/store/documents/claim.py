"""`claim/<token>.json`: who works on a run. One line, written again at every beat."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ablate.store.documents._document import Part, Seconds


class Count(Part):
    """How far a part of a run is: `tasks 120/400`."""

    what: str
    """What is counted: an evaluation's items, or the parts of a measurement."""
    done: Annotated[int, Field(ge=0)]
    """Of `total`."""
    total: Annotated[int, Field(ge=1)]
    """In all."""

    def __str__(self) -> str:
        return f"{self.what} {self.done}/{self.total}"


class ClaimRecord(Part):
    """A process that alone may write to the folder around `claim/`, for as long as it beats."""

    token: str
    """Of this claim, like no other."""
    host: tuple[str, str, str]
    """The machine, its start, and its space of process numbers."""
    pid: Annotated[int, Field(ge=1)]
    """The process."""
    started: str | None
    """When that process began, so that another of the same number is not taken for it; null where unknown."""
    beat_seconds: Seconds
    """How often it shows that it lives."""
    beat: int
    """How often it has done so."""
    count: Count | None = None
    """How far its measurement or evaluation is."""
