"""Report sections of evaluations: counterparts (twins) of the files in `evals/evaluations`, with the same names.

An evaluation needs no twin: its scores are compared, drawn and printed without one. A twin reads the evaluation's table
into a frame and draws it. No list of twins exists: they are sections of the report (`reports.page.sections`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import polars as pl

from reports.judge.reading.documents import StudyDocuments
from reports.judge.reading.keys import KEYS
from reports.page.sections import Section, sections
from reports.page.wording import words
from store.documents import EvalsDocument, JsonObject, JsonScalar
from store.documents import Section as Stored
from store.result_columns import Row, Schema


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


def twins() -> dict[str, type[EvaluationSection]]:
    """The sections of evaluations by name."""
    return {name: each for name, each in sections().items() if issubclass(each, EvaluationSection)}


def lines(document: EvalsDocument) -> list[tuple[str, ...]]:
    """Task, metric, value, standard error and chance of every score; the reason takes the value's place if there is
    none."""
    found: list[tuple[str, ...]] = [
        (
            task,
            metric,
            *("" if number is None else words.score(number) for number in (each.value, each.stderr, each.chance)),
        )
        for task, metrics in document.scores.items()
        for metric, each in metrics.items()
    ]
    known = twins()
    for name, table in document.sections.items():
        for row in (row for row in table.rows if "reason" in row):
            task, metric = known[name].missed(table.about, row) if name in known else (name, "")
            found.append((task, metric, str(row["reason"]), "", ""))
    return found


def printed(document: EvalsDocument) -> str:
    """Text that the command line prints below the scores, from all evaluations."""
    known = twins()
    return "".join(known[name].printed(table) for name, table in document.sections.items() if name in known)
