"""Several names in a sentence."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

SHOWN = 8
"""Seeds that a sentence lists."""


def listed(names: Sequence[str]) -> str:
    """`pre`, `pre and post`, `pre, post and double`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def listed_seeds(seeds: Sequence[Hashable]) -> str:
    """Seeds as words: `seeds 3, 4 and 90 more`."""
    shown = ", ".join(map(str, seeds[:SHOWN]))
    more = f" and {len(seeds) - SHOWN:,} more" if len(seeds) > SHOWN else ""
    return f"seed{'s' if len(seeds) > 1 else ''} {shown}{more}"
