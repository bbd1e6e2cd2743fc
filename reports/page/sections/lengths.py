"""Training length of arms, and reference losses of their text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import polars as pl

from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.collected import Collected
from reports.judge.reading.documents import StudyDocuments
from reports.page.sections import Section
from reports.page.wording import training_words
from store.documents import ReferenceLosses

LOSSES = tuple(ReferenceLosses.model_fields)
CORPORA = {"data": pl.String, "train_tokens": pl.Int64, **dict.fromkeys(LOSSES, pl.Float64)}


@dataclass(frozen=True)
class Lengths(Section):
    """`train_tokens` by digest of the corpora in the store; `references` if all arms read one corpus."""

    place: ClassVar[int] = 35
    title: ClassVar[str] = "Length of training"

    train_tokens: Mapping[str, int]
    references: ReferenceLosses | None

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Mapping[str, pl.DataFrame]:
        rows = [
            {"data": meta.digest, "train_tokens": meta.tokens.train, **dict(meta.references)}
            for meta in documents.corpora.values()
        ]
        return {"corpora": pl.DataFrame(rows, schema=CORPORA)}

    @classmethod
    def summarise(cls, data: Collected) -> Self:
        corpora = data.frames["corpora"]
        # losses per token are comparable only with those of the one corpus that all arms read
        one = corpora.height == 1 and data.study.per == "token"
        references = ReferenceLosses(**corpora.select(LOSSES).row(0, named=True)) if one else None
        return cls(dict(corpora.select("data", "train_tokens").rows()), references)

    def sentences(self, summary: StudySummary) -> Iterator[str]:
        for arm in summary.study.arms:
            yield training_words.trained(arm, self.train_tokens.get(arm.data))
        if self.references is not None:
            yield self.references.sentence
