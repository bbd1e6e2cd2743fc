"""`claim/<token>.json`: who works on a run. One line, written again at every beat."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ablate.store.documents._document import Part, Seconds


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
    """How often it has done so. The last field, for it alone changes."""
