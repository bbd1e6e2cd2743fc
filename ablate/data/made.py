"""Sources without text, whose examples are made on demand: only their settings are stored."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ablate.data.corpus import Examples, HeldOutRows
from ablate.data.identity import DataIdentity
from ablate.data.sources import DataSource
from evals.reading.question import Question
from store import DataFolder
from store.documents import HeldOutPart, SyntheticMeta


class MadeCorpus(Protocol):
    """Examples of a source, for training, validation and questions."""

    directory: Path
    digest: str
    vocab_size: int
    tokenizer_path: None
    eos: None

    @property
    def source(self) -> MadeSource:
        """The source whose settings make its examples."""

    def batch(self, step: int, *, batch: int, context: int, seed: int) -> Examples:
        """batch · context tokens of a training step, the same for every arm."""

    def held_out_rows(self, part: HeldOutPart, context: int) -> list[HeldOutRows]:
        """The examples of a held-out part, numbered consecutively; no byte counts."""

    def floor(self, part: HeldOutPart) -> float | None:
        """Lowest possible loss on a held-out part, in nats per target; None if unknown."""

    def widths(self, context: int) -> tuple[int, ...]:
        """Row widths in tokens; training steps cycle through them."""

    def questions(self, at: Mapping[str, Sequence[int]], examples: int, seed: int) -> Iterator[Question]:
        """Yield `examples` examples of each difficulty; `at` overrides the values of some difficulties.

        Raises:
            DataError: as `difficulty_error` says.
        """


class MadeSource(DataSource):
    """A source whose examples are made from its settings."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of token ids."""

    @abstractmethod
    def identify(self) -> DataIdentity:
        """Identity from the settings, and from what they make."""

    @abstractmethod
    def describe(self, identity: DataIdentity) -> SyntheticMeta:
        """The document of its corpus."""

    @abstractmethod
    def open(self, folder: DataFolder, digest: str) -> MadeCorpus:
        """Its corpus, described in a folder."""

    @abstractmethod
    def difficulty_error(self, at: Mapping[str, Sequence[int]]) -> str | None:
        """Why its difficulties cannot have the values `at`; None if they can."""
