"""Identities of data before it is prepared: of a text by its content, of examples made on demand by their settings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from ablate.data.corpus import Examples, HeldOutRows
from ablate.data.sources import DataSource, TextSource
from ablate.data.splitting import survey
from evals.reading.question import Question
from store import DataFolder
from store.documents import HeldOutPart, SyntheticMeta, TextSplit
from zoo.settings.identity import digest_of, identity_of

SCHEMA = 2
DIGITS = 32


@dataclass(frozen=True)
class DataIdentity:
    """digest: name of the prepared corpus. Equal text, tokenizer and split give equal digests, whatever their paths."""

    digest: str
    vocab_size: int
    content: str
    """Hash of the content."""
    unread: str = ""
    """Why the corpus is unknown, if the hub could not be reached and a plan goes on without it; else empty."""

    @classmethod
    def open(cls, vocab_size: int, reason: str) -> Self:
        """The identity of a text that could not be read; it matches no stored run."""
        return cls("unread", vocab_size, "", reason)


def identify_text(spec: TextSource, base: Path = Path()) -> DataIdentity:
    """Read and hash the text; neither tokenise nor write.

    Raises:
        DataError: the text or the tokenizer cannot be read, or a split would be empty.
    """
    if fingerprint := spec.fingerprint():
        content, held_out = fingerprint, 0
    elif extent := spec.extent():
        content, held_out = extent
    else:
        found = survey(spec, base)
        content, held_out = found.content, found.documents.held_out
    split = split_of(spec, base, held_out)
    tokenizer = spec.tokenizer.identity(base)
    known = {"schema": SCHEMA, "content": content, "tokenizer": tokenizer, "split": identity_of(split)}
    return DataIdentity(digest_of(known, DIGITS), spec.tokenizer.vocabulary(base), content)


def split_of(spec: TextSource, base: Path, held_out: int) -> TextSplit:
    """The split's settings. held_out: number of documents in the held-out parts."""
    if spec.held_out(base) is None:
        return TextSplit(fraction=spec.validation_fraction, tokens=spec.validation_tokens)
    return TextSplit(fraction=None, tokens=spec.validation_tokens, given=held_out)


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
