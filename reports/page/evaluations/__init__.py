"""Report sections of evaluations: counterparts (twins) of the files in `evals/evaluations`, with the same names.

An evaluation needs no twin: its scores are compared, drawn and printed without one. A twin reads the evaluation's table
into a frame and draws it. No list of twins exists: they are sections of the report (`reports.page.sections`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import polars as pl

from reports.judge.reading.documents import StudyDocuments
from reports.judge.reading.evaluations import KEYS
from reports.page.sections import Section
from store.documents import JsonObject, JsonScalar
from store.documents import Section as Stored
from store.tables import Row, Schema


class EvaluationSection(Section):
    """The section of the evaluation of the same name, which is also its frame's name."""

    place: ClassVar[int] = 135
    schema: ClassVar[Schema]
    """Columns of the frame, from the evaluation's table (`about`) and from each row; null if neither has them."""
    loss_columns: ClassVar[tuple[str, ...]] = ()
    """Columns in nats per token. If there are any, the evaluation's scores are losses too."""

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Mapping[str, pl.DataFrame]:
        rows = [
            run.key.row(cls.row(table.about, row)) for run in documents.evaluated for table, row in run.rows(cls.name())
        ]
        return {cls.name(): pl.DataFrame(rows, schema=KEYS | cls.schema)}

    @classmethod
    def row(cls, about: Mapping[str, JsonScalar], row: JsonObject) -> Row:
        """A row of the frame without its key."""
        known = {**about, **row}
        return {name: known[name] for name in cls.schema if name in known}

    @classmethod
    def losses(cls) -> Mapping[str, Sequence[str]]:
        return {cls.name(): cls.loss_columns} if cls.loss_columns else {}

    @classmethod
    def missed(cls, about: Mapping[str, JsonScalar], row: JsonObject) -> tuple[str, str]:
        """Task and metric whose score is missing, for a row with a reason; printed by the command line."""
        return cls.name(), ""

    @classmethod
    def printed(cls, table: Stored) -> str:
        """Text that the command line prints below the scores."""
        return ""
