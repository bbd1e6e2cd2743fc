"""What a section of the report reads from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from reports.judge.reading.documents import StudyDocuments

Frames = Mapping[str, pl.DataFrame]


class SectionReader:
    """The frames of one section. Subclasses summarise and draw them."""

    @classmethod
    def name(cls) -> str:
        """Name of the section: its module's name."""
        return cls.__module__.rpartition(".")[2]

    @classmethod
    def collect(cls, documents: StudyDocuments) -> Frames:
        """Frames that the section reads from the store, by name."""
        return {}

    @classmethod
    def losses(cls) -> Mapping[str, Sequence[str]]:
        """Columns in nats per token, by frame: they become nats per byte if arms have different tokenizers."""
        return {}
