"""Claims that the study states, each with its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from reports.judge.reading.collected import Collected
from reports.page.sections import Section

MARKS = {
    "holds": "M-6,0 L-2,5 L6,-5",
    "does not hold": "M-5,-5 L5,5 M5,-5 L-5,5",
    "cannot tell": "M-5.5,0 a5.5,5.5 0 1,0 11,0 a5.5,5.5 0 1,0 -11,0",
    "not tested": "M-6,0 H6",
}
"""SVG path of an outcome's mark, in pixels around its centre: a check, a cross, a ring and a dash."""


@dataclass(frozen=True)
class Claims(Section):
    """Claims of the study; the summary judges them."""

    place: ClassVar[int] = 12
    title: ClassVar[str] = "Claims"
    template: ClassVar[str] = "claims.html.j2"

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        return cls() if data.study.claims else None

    def mark(self, outcome: str) -> str:
        return MARKS[outcome]
