"""`ablate.replicate`: a paper's table with our results beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Unpack

import reports
from ablate.api.result import StudyResult
from ablate.api.running import run
from ablate.running.options import RunOptions, documented
from ablate.running.progress import Wanted
from ablate.study.papers import find_paper
from ablate.study.written import Sets
from reports.judge.claims.replication import ReplicatedRow
from reports.page.wording import replication_words
from store.documents import JsonObject, StudyPublished


@dataclass(frozen=True)
class Replication:
    """A published table beside the results of a study.

    Attributes:
        result: the study's result, with its report.
        table: the published table.
        rows: an object for each row: the published values, the study's judgement of them, and its power.
    """

    result: StudyResult
    table: StudyPublished | None
    rows: tuple[ReplicatedRow, ...]

    @cached_property
    def text(self) -> tuple[tuple[str, ...], ...]:
        """The table as rows of text, the header first; empty if failed runs left nothing to compare."""
        return replication_words.table(self.rows) if self.rows else ()

    def notes(self) -> list[str]:
        """Lines below the table: source and conditions, number of rows that agree, meaning of the marks."""
        return replication_words.notes(self.table, self.rows) if self.table and self.rows else []

    def document(self) -> JsonObject:
        """The document that `ablate replicate --json` prints."""
        return {
            "study": self.result.name,
            "scale": self.result.scale,
            "source": self.table.source if self.table else None,
            "rows": [_document(row) for row in self.rows],
            "report": str(self.result.report) if self.result.report else None,
            "failed": len(self.result.failed),
        }


def _document(found: ReplicatedRow) -> JsonObject:
    row, effect = found.row, found.judged.effect
    return {
        **{
            name: getattr(row, name)
            for name in ("arm", "against", "label", "figure", "difference", "expect", "unchecked")
        },
        "ours": effect.mean if effect else None,
        "low": effect.low if effect else None,
        "high": effect.high if effect else None,
        "outcome": found.outcome,
        "power": found.power,
        "seen": found.judged.seen,
        "reason": found.judged.reason,
    }


@documented(RunOptions.__annotations__)
def replicate(
    paper: str | Path,
    *,
    scale: str | None = None,
    sets: Sets = (),
    store: str | Path = "runs",
    progress: Wanted = True,
    trackers: Sequence[str] = (),
    **options: Unpack[RunOptions],
) -> Replication:
    """Replicate a paper's table at an affordable scale: each row agrees, disagrees, or cannot be told.

    Args:
        paper: a study file with a section `published`, the name of one that ships, or its arXiv number: `2002.05202`.
        scale, sets, store, progress, trackers: as in `ablate.run`.
        options: see `ablate.running.options`.

    Returns:
        The table, with our differences beside the published ones, and the study's result.

    Raises:
        ArgumentError: no such paper ships, or the study has no published table.
        StudyError, EngineError, StoreError: as in `ablate.run`.

    Example:
        >>> ablate.replicate("2002.05202", scale="smoke").text
    """
    path = find_paper(paper)
    result = run(path, scale=scale, sets=sets, store=store, progress=progress, trackers=trackers, **options)
    if result.summary is None:
        return Replication(result, None, ())
    return Replication(result, result.summary.study.published, reports.replicated(result.summary))
