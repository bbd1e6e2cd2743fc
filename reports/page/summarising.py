"""A study's findings, with those of every section of the report."""

from __future__ import annotations

from pathlib import Path

from reports.judge.findings.study_summary import StudySummary
from reports.judge.findings.summary import summarise
from reports.judge.reading.collect import collected
from reports.judge.reading.documents import StudyDocuments
from reports.page.sections import sections
from store import Store


def summarise_study(study_dir: Path | str, store: Store | None = None) -> StudySummary:
    """Intervals, paired differences and verdicts of the study in a store's folder. store: if given, results that it has
    read are not read again.

    Raises ReportError if there is no study, or the runs must not be compared.
    """
    return summarise_documents(StudyDocuments.of(study_dir, store))


def summarise_documents(documents: StudyDocuments) -> StudySummary:
    """The same from a study's documents."""
    found = tuple(sections().values())
    return summarise(collected(documents, found), found)
