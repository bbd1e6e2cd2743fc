"""Field annotation: command-line option for a setting of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """Option named like its field or, if given, `name`. Under the evaluation's name it also requests the evaluation.

    `read` parses a word and raises ValueError if it cannot. `join` combines the values of several words; without it the
    option takes one word. A `flag` takes no word and sets the field to true.
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


def named_numbers(word: str) -> tuple[str, list[int]]:
    """Name and whole numbers, as in `pairs=4,64`. Raises ValueError for other words."""
    name, _, values = word.partition("=")
    try:
        return name, [int(value) for value in values.split(",")]
    except ValueError as error:
        raise ValueError(f"expected whole numbers, as in {name}=4,64") from error


def once(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """The pairs as a map. Raises ValueError for a name that is given twice."""
    found: dict[str, T] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = value
    return found
