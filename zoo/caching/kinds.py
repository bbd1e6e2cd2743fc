"""Lookup of a kind of cache by its name or its settings."""

from __future__ import annotations

from typing import Annotated

from zoo.caches import CacheKind
from zoo.settings.axis import Choice, Spec
from zoo.settings.edits import SpecJson
from zoo.settings.explain import checked


class _Asked(Spec):
    cache: Annotated[CacheKind, Choice("zoo.caches")]
    """Kind of cache, by name or as a map with its settings."""


def cache_kind(value: CacheKind | str | SpecJson) -> CacheKind:
    """A kind, given as a spec, as a map with `kind`, or as the bare kind. Raises SpecError."""
    return value if isinstance(value, CacheKind) else checked(_Asked, {"cache": value}).cache
