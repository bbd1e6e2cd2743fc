"""Problems of a study, with the places where the user wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from store import AblateError
from zoo.errors import Kind


@dataclass(frozen=True)
class Place:
    """A position in a file (1-based line and column), or a source without positions, such as `--set lr=1`."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """A problem. `path` is dotted, as the user wrote it, and empty for the whole file; `kind` is for programs."""

    place: Place
    path: str
    reason: str
    kind: Kind = "illegal"

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.place), self.path, self.reason) if part)


class StudyError(AblateError, ValueError):
    """A study that cannot be planned. The message has one line per problem, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        unique = dict.fromkeys(problems)
        self.problems = tuple(sorted(unique, key=lambda p: (p.place.line or 0, p.place.column or 0)))
        super().__init__("\n".join(map(str, self.problems)))
