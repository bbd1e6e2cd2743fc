"""Whether differences change with size and length: what the headline says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.ladders.rungs import Axis, Change, Word
from reports.wording.listing import listed

AXES: tuple[Axis, ...] = ("size", "length")
MOST_NAMED = 6
VERBS: dict[Word, str] = {"grows": "grows", "shrinks": "shrinks", "flips": "changes sign", "changes": "changes"}


def clauses(changes: Sequence[Change]) -> str:
    """` With length (half_length to full), the difference of double shrinks; cannot tell for post.`, for each axis.

    Nothing where nothing is judged yet.
    """
    return "".join(_clause(axis, list(_farthest(changes, axis))) for axis in AXES)


def _farthest(changes: Sequence[Change], axis: Axis) -> Iterator[Change]:
    """The farthest change of each arm along an axis; rungs of an axis are listed from the farthest on."""
    seen = set[str]()
    for each in changes:
        if each.axis == axis and each.arm not in seen and each.word != "no verdict":
            seen.add(each.arm)
            yield each


def _clause(axis: Axis, found: Sequence[Change]) -> str:
    if not found:
        return ""
    by = {word: [each.arm for each in found if each.word == word] for word in (*VERBS, "cannot tell")}
    parts = [f"the difference of {listed(by[word])} {verb}" for word, verb in VERBS.items() if by[word]]
    if by["cannot tell"]:
        whether = "" if parts else " whether the difference changes"
        names = by["cannot tell"]
        parts.append(f"cannot tell{whether} for {listed(names) if len(names) <= MOST_NAMED else f'{len(names)} arms'}")
    return f" With {axis} ({found[0].rung} to {found[0].last}), {'; '.join(parts)}."
