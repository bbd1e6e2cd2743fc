"""Parsing of human-readable sizes."""

from __future__ import annotations

import math

from ablate.readable import NUMBER, UNITS
from store.errors import ArgumentError


def size_in_bytes(size: str | float, argument: str) -> float:
    """Bytes in a size such as `80GB`, `24 GiB` or a number of bytes. Raises ArgumentError that names the argument."""
    if not isinstance(size, str):
        number, unit = float(size), "B"
    elif (found := NUMBER.fullmatch(size.strip())) is None or found[2] not in UNITS:
        raise ArgumentError(argument, "expected a size such as 80GB or 24GiB", size)
    elif not found[2]:
        raise ArgumentError(argument, f"a size needs a unit: {found[1]}GB or {found[1]}GiB", size)
    else:
        number, unit = float(found[1]), found[2]
    if not 0 < number < math.inf:
        raise ArgumentError(argument, "expected a size above 0", size)
    return number * UNITS[unit]
