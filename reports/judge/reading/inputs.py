"""Training inputs of a study's arms: data, vocabulary and context."""

from __future__ import annotations

from dataclasses import dataclass

from reports.judge.reading.documents import StudyDocuments
from store.documents import SyntheticMeta


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
