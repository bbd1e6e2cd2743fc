"""Field annotation: how a setting of an evaluation is given on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """The field has an option of its own name, or another `name`; of its evaluation's name it stands behind that one.

    `read` makes a value of a word and raises ValueError for what it is not. `join` makes the field of the values of
    several words; without it there is one word. A `flag` has no word, and sets the field to true.
    """

    metavar: str = ""
    read: Callable[[str], Any] = str
    join: Callable[[Iterable[Any]], Any] | None = None
    name: str | None = None
    flag: bool = False


def whole(word: str) -> int:
    try:
        return int(word)
    except ValueError as error:
        raise ValueError("expected a whole number") from error


def rows(word: str) -> int | str:
    return word if word == "auto" else whole(word)


def names(word: str) -> list[str]:
    """`a,b` is two names."""
    return [name for name in word.split(",") if name]


def named_path(word: str) -> tuple[str, str]:
    name, _, path = word.partition("=")
    if not (name and path):
        raise ValueError("expected NAME=PATH")
    return name, path


def named_numbers(word: str) -> tuple[str, list[int]]:
    """`pairs=4,64`."""
    name, _, values = word.partition("=")
    try:
        return name, [int(value) for value in values.split(",")]
    except ValueError as error:
        raise ValueError(f"expected whole numbers, as in {name}=4,64") from error


def flat(values: Iterable[list[str]]) -> list[str]:
    return list(chain.from_iterable(values))


def once(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Raises ValueError for a name that is given twice, of which one would be lost."""
    found: dict[str, T] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = value
    return found
