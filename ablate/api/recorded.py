"""Answers that were recorded before, for whoever is about to ask again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import reports
from ablate.study.written import SHIPPED

if TYPE_CHECKING:
    from reports.results.document import RecordedResult

RESULTS = SHIPPED / "results"
"""Recorded results of the shipped studies."""


def recorded(study: Path) -> tuple[RecordedResult, ...]:
    """Results of a study, one a scale, as `ablate report --record` writes them to `results` beside the study's file.

    Raises:
        ReportError: a file of such a name is no recorded result.
    """
    folder = RESULTS if SHIPPED in study.resolve().parents else study.parent / "results"
    return tuple(map(reports.read_result, sorted(folder.glob(f"{study.stem}@*.json"))))
