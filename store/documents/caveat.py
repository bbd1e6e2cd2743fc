"""Caveats of a study: what its result must not be read without, and no number in it shows."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from store.documents._document import Part, is_none


class Caveat(Part):
    """A caveat about the whole result, or about one arm."""

    text: Annotated[str, Field(min_length=1)]
    """One or two sentences."""
    arm: str | None = Field(default=None, exclude_if=is_none)
    """The arm, or the factor of a design, that it is about; null for the whole result."""

    def __str__(self) -> str:
        """`Caveat (lion): Tuned in its learning rate alone.`"""
        return f"Caveat{f' ({self.arm})' if self.arm else ''}: {self.text}"
