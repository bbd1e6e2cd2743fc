"""Text read from files: what was recognised in them, what was skipped, and how the text begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import polars as pl

from reports.judge.reading.collected import Collected
from reports.judge.reading.documents import StudyDocuments
from reports.page.sections import Section


@dataclass(frozen=True)
class TakenText(Section):
    """`receipts`: lines on each corpus."""

    place: ClassVar[int] = 36
    title: ClassVar[str] = "Text"
    template: ClassVar[str] = "taken_text.html.j2"

    receipts: tuple[tuple[str, ...], ...]

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Mapping[str, pl.DataFrame]:
        rows = [{"corpus": digest, "line": line} for digest, meta in documents.corpora.items() for line in meta.receipt]
        return {cls.name(): pl.DataFrame(rows, schema={"corpus": pl.String, "line": pl.String})}

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        rows = data.frames[cls.name()]
        found = rows.group_by("corpus", maintain_order=True).agg("line")["line"].to_list()
        return cls(tuple(map(tuple, found))) if found else None
