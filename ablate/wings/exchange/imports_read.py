"""Imported models in the store: models that were trained elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from store import Store, StoreError
from store.documents import ImportDocument, MeasureDocument, ResultDocument, RunDocument, TextMeta

Text = tuple[str, float | None, int | None]
"""Properties that two losses per byte must share to be comparable: the documents, and the fraction or number of them
that is held out."""


@dataclass(frozen=True)
class ImportedScore:
    """One metric of one task."""

    task: str
    metric: str
    value: float
    stderr: float | None


@dataclass(frozen=True)
class ImportedModel:
    """An imported model, its run, and all its scores. `text` is None if the corpus is gone."""

    document: ImportDocument
    run: RunDocument
    result: ResultDocument
    measured: MeasureDocument | None
    scores: tuple[ImportedScore, ...]
    source: str
    text: Text | None


@dataclass(frozen=True)
class Imports:
    """The imported models of a store in alphabetical order, and the errors of those that cannot be shown."""

    models: tuple[ImportedModel, ...]
    errors: tuple[str, ...]


def read_imports(store: Store) -> Imports:
    models, errors = [], []
    for name in store.imports():
        try:
            models.append(_read(store, name))
        except (StoreError, OSError) as error:
            errors.append(f"{name}: {error}")
    return Imports(tuple(models), tuple(errors))


def text_of(store: Store, corpus: str) -> Text | None:
    """The text of a corpus, independent of its tokenizer; None for a synthetic task or a missing corpus."""
    meta = store.data(corpus).read() if store.data(corpus).path.is_dir() else None
    return (meta.content_read, meta.split.fraction, meta.split.given) if isinstance(meta, TextMeta) else None


def _read(store: Store, name: str) -> ImportedModel:
    document = store.read_import(name)
    run = store.read_run(document.run) if document else None
    result = store.read_result(document.run) if document else None
    if document is None or run is None or result is None:
        raise StoreError("its run is gone: import the model again")
    measured = store.read_measure(run.digest, document.measure) if document.measure else None
    corpus = store.data(run.data.digest)
    meta = corpus.read() if corpus.path.is_dir() else None
    source = str(meta.spec["source"]) if meta else f"data {run.data.digest[:8]}"
    text = text_of(store, run.data.digest)
    scores = {  # the newest evaluation wins if several have the same score
        (task, metric): ImportedScore(task, metric, score.value, score.stderr)
        for evaluated in store.all_evals(run.digest)
        for task, metrics in evaluated.scores.items()
        for metric, score in metrics.items()
        if score.value is not None
    }
    return ImportedModel(document, run, result, measured, tuple(scores.values()), source, text)
