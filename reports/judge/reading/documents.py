"""The documents of a study and of its runs, each read once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from reports.judge.reading.evaluations import EvaluatedRun, read
from reports.judge.reading.keys import RunKey, keys_of
from reports.judge.reading.outcomes import ENDED, FAILED, outcomes
from reports.judge.reading.references import TextReferences, text_references
from store import Store, StudyFolder
from store.documents import (
    CostsDocument,
    MeasureDocument,
    StudyDocument,
    SyntheticMeta,
    TextMeta,
)
from store.documents.result import Outcome
from store.errors import ReportError
from store.result_columns import Row
from store.store import Status
from store.tables import RunTables


@dataclass(frozen=True)
class StudyDocuments:
    """A study, its store and its folder."""

    study: StudyDocument
    store: Store
    folder: StudyFolder

    @classmethod
    def of(cls, study_dir: Path | str, store: Store | None = None) -> StudyDocuments:
        """Open a study. store: opened from the study's folder by default. Raises ReportError if there is no study."""
        folder = StudyFolder(Path(study_dir))
        study = folder.read()
        if study is None:
            raise ReportError(f"{study_dir} holds no study.json")
        return cls(study, store or Store.of_study(study_dir), folder)

    @property
    def costs(self) -> CostsDocument | None:
        """The arms' speeds, measured against each other."""
        return self.folder.read_costs(self.study.costs) if self.study.costs else None

    @cached_property
    def keys(self) -> list[RunKey]:
        """The runs that the study asks for."""
        return keys_of(self.study)

    @cached_property
    def tables(self) -> RunTables:
        """The runs' files, one row for each of `keys`."""
        return RunTables(self.store, [key.digest for key in self.keys])

    @cached_property
    def statuses(self) -> dict[str, Status]:
        """Status of each run, by its digest."""
        return dict(zip((key.digest for key in self.keys), self.tables.results["status"].to_list(), strict=True))

    @cached_property
    def ended(self) -> dict[str, Outcome]:
        """Outcome of each run that has ended, by its digest."""
        found = zip(self.keys, *(self.tables.results[name].to_list() for name in ("status", "loss")), strict=True)
        return {key.digest: Outcome(status, loss) for key, status, loss in found if status in ENDED}

    @property
    def began(self) -> str | None:
        """Start of the first run that has ended, tuning included (ISO 8601); None if the study is not registered or no
        run ended."""
        digests = self.study.run_digests if self.study.registrations else ()
        found = [result.started for digest in digests if (result := self.store.read_result(digest)) is not None]
        return min(found, key=datetime.fromisoformat, default=None)

    @cached_property
    def data(self) -> dict[str, TextMeta | SyntheticMeta]:
        """Metadata of the arms' data by digest, as far as the store has it."""
        folders = {arm.data: self.store.data(arm.data) for arm in self.study.arms}
        found = {digest: folder.read() for digest, folder in folders.items() if folder.is_known}
        return {digest: meta for digest, meta in found.items() if meta is not None}

    @cached_property
    def corpora(self) -> dict[str, TextMeta]:
        """The text corpora among `data`."""
        return {digest: meta for digest, meta in self.data.items() if isinstance(meta, TextMeta)}

    @cached_property
    def references(self) -> dict[str, TextReferences]:
        """Losses of simple models on the text of each arm, as far as the store has them."""
        return text_references(self.study, self.store, self.corpora)

    @cached_property
    def chances(self) -> dict[str, float]:
        """Accuracy of guessing for the synthetic tasks among `data`."""
        tasks = {digest: meta for digest, meta in self.data.items() if isinstance(meta, SyntheticMeta)}
        return {digest: meta.chance for digest, meta in tasks.items() if meta.chance is not None}

    @cached_property
    def outcomes(self) -> dict[str, Row]:
        """Outcome of each finished run by digest."""
        return outcomes(self.study, self.study.arms, self.ended, self.corpora, self.validations)

    def validations(self, digest: str) -> list[tuple[int, float]]:
        """(step, loss) of each validation of a run, in order."""
        logged, _ = self.store.read_many_metrics([digest], ("step", "validation_loss"))
        return list(logged.drop_nulls("validation_loss").select("step", "validation_loss").iter_rows())

    @cached_property
    def measured(self) -> list[tuple[RunKey, MeasureDocument]]:
        """The measurement of each run that has one."""
        request = self.study.measure
        if request is None:
            return []
        found = ((key, self.store.read_measure(key.digest, request)) for key in self.keys)
        return [(key, document) for key, document in found if document is not None]

    @cached_property
    def measurements(self) -> dict[str, MeasureDocument]:
        """`measured`, keyed by run digest."""
        return {key.digest: document for key, document in self.measured}

    @cached_property
    def evaluated(self) -> list[EvaluatedRun]:
        """Evaluation of each run that has one and neither diverged nor stalled: scores are averaged over runs that
        trained."""
        trained = [key for key in self.keys if self.outcomes.get(key.digest, {}).get("status") not in FAILED]
        return list(read(self.store, self.study, trained))
