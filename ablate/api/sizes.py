"""Sizes as people write them."""

from __future__ import annotations

from ablate.errors import ArgumentError
from ablate.study.search_constraints import NUMBER, UNITS


def size_in_bytes(text: str, argument: str) -> float:
    """Bytes of `80GB` or `24 GiB`. Raises ArgumentError that names the argument."""
    found = NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in UNITS or float(found[1]) == 0:
        raise ArgumentError(argument, "not a size such as 80GB or 24GiB", text)
    return float(found[1]) * UNITS[found[2]]
