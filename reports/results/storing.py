"""Results of the studies of a store, and their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ablate.store import Store, StudyFolder
from ablate.store.documents.study import UNJUDGED
from reports.errors import ReportError
from reports.findings.summary import summarise_study
from reports.reading.documents import StudyDocuments
from reports.results import files
from reports.results.document import RecordedResult
from reports.results.recording import recorded


def result_of(study_dir: Path, notes: Sequence[str] = ()) -> RecordedResult:
    """The result of a study in a store. Raises ReportError where there is none."""
    summary = summarise_study(study_dir)
    if summary.study.scale in UNJUDGED:
        raise ReportError(f"{study_dir}: a {summary.study.scale} run answers nothing, so it is not recorded")
    if not any(arm.seeds or arm.failed for arm in summary.arms):
        raise ReportError(f"{study_dir}: no run has ended, so there is no result to record")
    return recorded(summary, StudyDocuments.of(study_dir), notes)


def record_result(study_dir: Path, folder: Path | None = None, notes: Sequence[str] = ()) -> Path:
    """Write a study's result to a file and return its path.

    folder: None for `results` beside the study's file. notes: without any, those of the file that is replaced stay.

    Raises ReportError where there is no result, or no folder.
    """
    place = folder or beside(study_dir)
    found = result_of(study_dir, notes)
    before = place / f"{found.name}.json"
    if not notes and before.exists():
        found = found.model_copy(update={"notes": files.read(before).notes})
    return files.write(found, place)


def beside(study_dir: Path) -> Path:
    """`results` in the folder of the study's file."""
    study = StudyFolder(study_dir).read()
    if study is None or study.path is None:
        raise ReportError(f"{study_dir}: its study has no file beside which to record it: name a directory")
    return Path(study.path).parent / "results"


def results_of_store(root: Path) -> Iterator[tuple[RecordedResult, Path | None]]:
    """The result of every study of a store that has one, with its report where there is one."""
    for folder in Store(root).studies():
        study = folder.read()
        if study is not None and study.scale not in UNJUDGED and StudyDocuments.of(folder.path).ended:
            yield result_of(folder.path), folder.report_path if folder.report_path.exists() else None
