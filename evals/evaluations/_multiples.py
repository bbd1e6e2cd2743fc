"""Lengths of windows."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, PositiveInt


def _ascending(multiples: tuple[int, ...]) -> tuple[int, ...]:
    """One spelling: each once, in order."""
    return tuple(sorted(set(multiples)))


Multiples = Annotated[
    tuple[PositiveInt, ...], Field(min_length=1, max_length=16, strict=False), AfterValidator(_ascending)
]
"""Multiples of the training context, ascending."""
