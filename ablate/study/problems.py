"""Problems of a study: where the user wrote them, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ablate.store import AblateError
from zoo.errors import Kind


@dataclass(frozen=True)
class Place:
    """A position in a file (1-based line and column), or something that has none, such as `--set lr=1`."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """`path` is the dotted path as the user wrote it, empty for the file as a whole; `kind` is for programs."""

    place: Place
    path: str
    reason: str
    kind: Kind = "illegal"

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.place), self.path, self.reason) if part)


class StudyError(AblateError, ValueError):
    """A study that cannot be planned. Its text has one line per problem, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        unique = dict.fromkeys(problems)
        self.problems = tuple(sorted(unique, key=lambda p: (p.place.line or 0, p.place.column or 0)))
        super().__init__("\n".join(map(str, self.problems)))
