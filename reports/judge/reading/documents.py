"""The documents of a study and of its runs, each read once, and what they say of inputs and references.

Inputs of an arm are its data, vocabulary and context. References are the losses of simple models on the text of each
arm: what a loss is worth before it is compared with another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from reports.judge.reading.evaluations import EvaluatedRun, RunKey, keys_of, read
from reports.judge.reading.outcomes import ENDED, FAILED, outcomes
from store import Store, StudyFolder
from store.documents import (
    CostsDocument,
    MeasureDocument,
    References,
    StudyDocument,
    SyntheticMeta,
    TextMeta,
)
from store.documents.data import counted_tokens
from store.documents.result import Outcome
from store.errors import ReportError
from store.store import Status
from store.tables import Row, RunTables


@dataclass(frozen=True)
class TextReferences:
    """Losses of simple models on an arm's text, in the unit of the study's losses. `read`: n-gram models of as many
    training tokens as a run of the arm reads. `whole`: of all training tokens, as far as they are counted."""

    read: References
    whole: References

    def per_byte(self) -> TextReferences:
        return TextReferences(self.read.per_byte(), self.whole.per_byte())


def text_references(study: StudyDocument, store: Store, corpora: Mapping[str, TextMeta]) -> dict[str, TextReferences]:
    """Stored references of each arm that predicts the next token of a text. corpora: the arms' texts by digest."""
    found = {}
    for arm in study.arms:
        meta = corpora.get(arm.data)
        run = store.read_run(arm.runs[0].digest) if arm.runs and meta else None
        if meta is None or run is None or not run.predicts_next_token:
            continue
        folder, context = store.data(arm.data), run.train.get("context")
        stored = [
            folder.read_references(context, counted_tokens(tokens, meta.tokens.train))
            for tokens in (round(arm.length.tokens), None)
            if isinstance(context, int)
        ]
        losses = [each.references for each in stored if each is not None]
        if len(losses) == 2:
            found[arm.name] = TextReferences(*losses)
    return found


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


@dataclass(frozen=True)
class Inputs:
    """Distinct values over the arms, as far as the store knows them."""

    sources: tuple[str, ...] = ()
    """`prose`, `HuggingFaceFW/fineweb-edu`, or the name of a synthetic task."""
    vocabularies: tuple[int, ...] = ()
    """Vocabulary sizes in token ids."""
    contexts: tuple[int, ...] = ()
    """Tokens per sequence."""

    @classmethod
    def of(cls, documents: StudyDocuments) -> Inputs:
        found = documents.data.values()
        first = (documents.store.read_run(arm.runs[0].digest) for arm in documents.study.arms if arm.runs)
        contexts = {context for run in first if run and isinstance(context := run.train.get("context"), int)}
        sources = []
        for meta in found:
            if isinstance(meta, SyntheticMeta):
                sources.append(meta.synthetic)
            else:
                source = str(meta.spec.get("source", ""))
                sources.append(str(meta.spec["path"]) if source == "hf" else source)
        return cls(
            sources=tuple(dict.fromkeys(filter(None, sources))),
            vocabularies=tuple(sorted({meta.vocab_size for meta in found})),
            contexts=tuple(sorted(contexts)),
        )


NO_INPUTS = Inputs()
