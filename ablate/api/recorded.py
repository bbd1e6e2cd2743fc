"""Recorded answers to a study's question."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import reports
from ablate.study.written import RESULTS, results_beside

__all__ = ["RESULTS", "Recorded", "recorded", "sentence"]


class Recorded(TypedDict):
    """An answer, the scale and size (`56 k parameters, 5 seeds`) that it holds for, and the date of the record."""

    answer: str
    scale: str
    size: str
    recorded: str


def recorded(study: Path) -> list[Recorded]:
    """Recorded answers of a study, one for each scale, from `results` beside its file (`ablate report --record`).

    Raises:
        ReportError: a file of such a name is not a recorded result.
    """
    paths = sorted(results_beside(study).glob(f"{study.stem}@*.json"), key=lambda path: path.stem)
    results = map(reports.read_result, paths)
    return [
        {"answer": each.answer, "scale": each.scale, "size": reports.size_of(each), "recorded": each.recorded}
        for each in results
    ]


def sentence(found: Recorded) -> str:
    """`pre is best: … (recorded 2026-11-25 at cpu: 56 k parameters, 5 seeds)`."""
    return f"{found['answer']} (recorded {found['recorded']} at {found['scale']}: {found['size']})"
