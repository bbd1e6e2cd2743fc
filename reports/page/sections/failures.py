"""Runs that ended in an error: the error, the end of its traceback, and the command that prints the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import polars as pl

from reports.judge.reading.collected import Collected
from reports.judge.reading.documents import StudyDocuments
from reports.judge.reading.evaluations import KEYS
from reports.page.sections import Section

LINES = 6
"""Number of traceback lines shown."""
FAILURES = KEYS | {"error": pl.String, "traceback": pl.String}


@dataclass(frozen=True)
class FailedRun:
    """Seeds of an arm that failed with the same error; `digest` is the first seed's."""

    arm: str
    seeds: tuple[int, ...]
    digest: str
    error: str
    traceback: str

    @property
    def command(self) -> str:
        return f"ablate logs {self.digest}"


@dataclass(frozen=True)
class Failures(Section):
    """Failed runs without a result; a run that was trained again is not among them."""

    place: ClassVar[int] = 5
    title: ClassVar[str] = "Failed runs"
    template: ClassVar[str] = "failures.html.j2"

    found: tuple[FailedRun, ...]

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Mapping[str, pl.DataFrame]:
        rows = []
        for key in documents.keys:
            error = None if key.digest in documents.ended else documents.store.read_error(key.digest)
            if error is not None:
                lines = documents.store.read_traceback(key.digest).rstrip().splitlines()
                rows.append(key.row({"error": error, "traceback": "\n".join(lines[-LINES:])}))
        return {cls.name(): pl.DataFrame(rows, schema=FAILURES)}

    @classmethod
    def summarise(cls, data: Collected) -> Self | None:
        groups = data.frames[cls.name()].group_by("arm", "error", maintain_order=True)
        found = tuple(
            FailedRun(str(arm), tuple(rows["seed"]), rows["digest"][0], str(error), rows["traceback"][0])
            for (arm, error), rows in groups
        )
        return cls(found) if found else None

    def of(self, arm: str) -> FailedRun | None:
        """The first failure of an arm."""
        return next((each for each in self.found if each.arm == arm), None)
