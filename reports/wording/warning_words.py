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
    return tuple(f"{_names(names)}: {said}" if names else said for said, names in arms.items())


def _names(arms: list[str]) -> str:
    return (
        listed(arms) if len(arms) <= MOST_NAMED else f"{listed(arms[:MOST_NAMED])} and {len(arms) - MOST_NAMED} others"
    )
