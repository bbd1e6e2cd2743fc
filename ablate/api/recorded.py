"""Recorded answers to a study's question."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import reports
from ablate.study.written import SHIPPED

RESULTS = SHIPPED / "results"
"""Recorded results of the shipped studies."""


class Recorded(TypedDict):
    """An answer, the scale and the size (`56 k parameters, 5 seeds`) that it holds for, and the day of the record."""

    answer: str
    scale: str
    size: str
    recorded: str


def recorded(study: Path) -> list[Recorded]:
    """Answers of a study by scale, as `ablate report --record` writes them to `results` beside the study's file.

    Raises:
        ReportError: a file of such a name is no recorded result.
    """
    folder = RESULTS if SHIPPED in study.resolve().parents else study.parent / "results"
    results = map(reports.read_result, sorted(folder.glob(f"{study.stem}@*.json")))
    return [
        {"answer": each.answer, "scale": each.scale, "size": reports.size_of(each), "recorded": each.recorded}
        for each in results
    ]


def sentence(found: Recorded) -> str:
    """`pre is best: … (recorded 2026-11-25 at cpu: 56 k parameters, 5 seeds)`."""
    return f"{found['answer']} (recorded {found['recorded']} at {found['scale']}: {found['size']})"
