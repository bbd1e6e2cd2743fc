"""Inputs of the arms of a study in training: data, vocabulary and context."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.store.documents import SyntheticMeta, TextMeta
from reports.reading.documents import StudyDocuments


@dataclass(frozen=True)
class Inputs:
    """Distinct values over the arms, as far as the store knows them."""

    sources: tuple[str, ...] = ()
    """`prose`, `HuggingFaceFW/fineweb-edu`, or the name of a synthetic task."""
    vocabularies: tuple[int, ...] = ()
    """Numbers of token ids."""
    contexts: tuple[int, ...] = ()
    """Tokens per sequence."""

    @classmethod
    def of(cls, documents: StudyDocuments) -> Inputs:
        found = documents.data.values()
        first = (documents.store.read_run(arm.runs[0].digest) for arm in documents.study.arms if arm.runs)
        contexts = {context for run in first if run and isinstance(context := run.train.get("context"), int)}
        return cls(
            sources=tuple(dict.fromkeys(filter(None, map(_source, found)))),
            vocabularies=tuple(sorted({meta.vocab_size for meta in found})),
            contexts=tuple(sorted(contexts)),
        )


def _source(meta: TextMeta | SyntheticMeta) -> str:
    if isinstance(meta, SyntheticMeta):
        return meta.synthetic
    source = str(meta.spec.get("source", ""))
    return str(meta.spec["path"]) if source == "hf" else source


NO_INPUTS = Inputs()
