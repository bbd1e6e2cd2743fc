"""Warnings that say the same of several arms, as one line."""

from __future__ import annotations

from collections.abc import Iterable

from reports.wording.listing import listed

MOST_NAMED = 8


def grouped(warnings: Iterable[str]) -> tuple[str, ...]:
    """`pre: a seed diverged.` and `post: a seed diverged.` as `pre and post: a seed diverged.`, in order."""
    arms: dict[str, list[str]] = {}
    for warning in warnings:
        arm, colon, said = warning.partition(": ")
        arms.setdefault(said if colon else warning, []).extend([arm] if colon else [])
    found = []
    for said, names in arms.items():
        if len(names) > MOST_NAMED:
            who = f"{listed(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} others: "
        else:
            who = f"{listed(names)}: " if names else ""
        found.append(who + said)
    return tuple(found)
